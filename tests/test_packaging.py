"""The package as others install it, and the files around it that must say the same."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import textwrap
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import d2lgpt

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
META = PROJECT["project"]
EXTRAS = META["optional-dependencies"]
LOCKING = PROJECT["tool"]["d2lgpt"]["lock"]

NEUTRAL = sorted(f"d2lgpt.{path.stem}" for path in (ROOT / "d2lgpt").glob("[!_]*.py"))
BACKENDS = {
    "torch": {"own": ["torch"], "other": ["jax", "jaxlib", "flax", "optax"]},
    "jax": {"own": ["jax", "flax"], "other": ["torch"]},
}


def modules(backend):
    return sorted(
        f"d2lgpt.{backend}.{p.stem}" for p in (ROOT / "d2lgpt" / backend).glob("[!_]*.py")
    )


def read(name):
    return (ROOT / name).read_text("utf-8")


# ---- Importing -----------------------------------------------------------------------------------

BLOCK = """\
import sys

class Block:
    '''Makes some packages look as if they were not installed.'''
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block())
"""


def python(code, blocked=()):
    """Run code in a Python of its own, in which the `blocked` packages cannot be imported."""
    code = BLOCK.format(blocked=list(blocked)) + textwrap.dedent(code)
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_the_package_loads_no_framework():
    heavy = {"torch", "jax", "flax", "optax", "matplotlib", "numpy", "tiktoken", "pooch", "IPython"}
    assert python(f"import d2lgpt; print(sorted({heavy} & set(sys.modules)))") == "[]"


def test_neutral_rooms_need_no_backend():
    python(
        f"import {', '.join(NEUTRAL)}", blocked=BACKENDS["torch"]["own"] + BACKENDS["jax"]["own"]
    )


def test_only_figures_load_matplotlib():
    rooms = ", ".join(room for room in NEUTRAL if room != "d2lgpt.figures")
    assert python(f"import {rooms}; print('matplotlib' in sys.modules)") == "False"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_works_without_the_other(backend):
    layer = {
        "torch": "d2lgpt.torch.scratch.LayerNorm(3)",
        "jax": "d2lgpt.jax.scratch.LayerNorm(3, rngs=__import__('flax').nnx.Rngs(0))",
    }[backend]
    code = f"""
        import {", ".join(modules(backend))}
        print(d2lgpt.{backend}.count_parameters({layer}))
    """
    assert python(code, blocked=BACKENDS[backend]["other"]) == "6"


@pytest.mark.parametrize(
    ("backend", "missing"), [("torch", "torch"), ("jax", "jax"), ("jax", "flax")]
)
@pytest.mark.parametrize("module", ["", ".scratch"])
def test_a_missing_backend_is_one_sentence(backend, missing, module):
    code = f"""
        try:
            import d2lgpt.{backend}{module}
        except ImportError as error:
            print(error)
            print(error.__cause__, error.__suppress_context__)
    """
    sentence, chain = python(code, blocked=[missing]).splitlines()
    assert missing in sentence
    assert f"pip install 'd2lgpt[{backend}]'" in sentence
    assert chain == "None True"  # no second traceback above it


def test_it_imports_only_what_it_asks_for():
    asked = {canonicalize_name(Requirement(line).name) for line in META["dependencies"]}
    # `%load_ext d2lgpt` runs inside of IPython, which brings these.
    neutral = asked | {"ipython", "matplotlib-inline"}
    for path in sorted((ROOT / "d2lgpt").rglob("*.py")):
        backend = path.parent.name if path.parent.name in BACKENDS else None
        extras = [backend] if backend else list(BACKENDS)  # neutral rooms ask for both when called
        allowed = neutral | {
            canonicalize_name(Requirement(line).name) for extra in extras for line in EXTRAS[extra]
        }
        imported = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
        foreign = imported - set(sys.stdlib_module_names) - {"d2lgpt"}
        assert {canonicalize_name(name) for name in foreign} <= allowed, path


# ---- Installing ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, opened."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", folder, ROOT], check=True)
    (path,) = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    info = f"d2lgpt-{META['version']}.dist-info/"
    names = {name for name in wheel.namelist() if not name.startswith(info)}
    package = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "d2lgpt").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    recorded = {f"d2lgpt/_recorded/{p.name}" for p in (ROOT / "book/recorded").iterdir()}
    assert names == package | recorded  # the recorded runs, which chapters draw on Colab too
    licenses = {f"{info}licenses/LICENSE", f"{info}licenses/LICENSE-TEXT"}
    assert licenses <= set(wheel.namelist())


def test_the_wheel_asks_for_no_exact_release(wheel):
    text = wheel.read(f"d2lgpt-{META['version']}.dist-info/METADATA").decode()
    required = re.findall(r"^Requires-Dist: (.*)$", text, re.MULTILINE)
    core = [line for line in required if "extra ==" not in line]
    assert sorted(core) == sorted(META["dependencies"])
    assert not [line for line in required if "==" in line.partition(";")[0]]


def test_nothing_installed_is_broken():
    """`pip check` complains of those that are installed without what they ask for, at most."""
    command = [sys.executable, "-m", "pip", "check"]
    lines = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    pins = LOCKING["without-dependencies"] + LOCKING["newest-without-dependencies"]
    alone = tuple(pin.partition("==")[0] for pin in pins)
    assert [x for x in lines if not x.startswith((*alone, "No broken requirements"))] == []


# ---- Lock files, conda ---------------------------------------------------------------------------

LOCKS = {
    "requirements.lock": (["dev"], LOCKING["newest"]),
    "requirements-colab.lock": (["torch", "jax", "test"], LOCKING["colab"]),
}


def lock_lines(name):
    return [line for line in read(name).splitlines() if not line.startswith("#")]


def requirements(extras):
    """The requirements of the package with some extras, those of extras in extras included."""
    lines = list(META["dependencies"])
    for extra in extras:
        for line in EXTRAS[extra]:
            requirement = Requirement(line)
            lines += requirements(requirement.extras) if requirement.name == "d2lgpt" else [line]
    return lines


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_holds_exact_pins_in_order(name):
    lines = lock_lines(name)
    # No local version (+cpu) and no hash: each system takes its own build of the same release.
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9a-z.]+", line)] == []
    names = [line.partition("==")[0] for line in lines]
    assert names == sorted(set(names))


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_meets_every_requirement(name):
    extras, held = LOCKS[name]
    pins = dict(line.split("==") for line in lock_lines(name))
    wanted = requirements(extras) + held + LOCKING["without-dependencies"]
    for requirement in map(Requirement, wanted):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin, f"{requirement} is not in {name}: run make lock"
        assert requirement.specifier.contains(pin), f"{requirement}, but {name} has {pin}"


def test_conda_installs_the_same():
    yaml = pytest.importorskip("yaml")
    environment = yaml.safe_load(read("environment.yml"))
    python_pin, _, from_pypi = environment["dependencies"]
    release = python_pin.removeprefix("python=")
    assert Requirement(f"python{META['requires-python']}").specifier.contains(release)
    assert from_pypi == {"pip": ["-c requirements.lock", "-e .[dev]"]}
    step = "pip install --no-deps " + " ".join(LOCKING["without-dependencies"])
    assert step in read("environment.yml")


def test_the_setup_cell_installs_what_is_pinned():
    cell = read("book/_scripts/setup_cell.py")
    for pin in LOCKING["without-dependencies"]:
        assert f'"{pin}"' in cell
    assert f'"git+{META["urls"]["Repository"]}@v{META["version"]}"' in cell


# ---- Files around the package --------------------------------------------------------------------


def test_versions_and_names_agree():
    yaml = pytest.importorskip("yaml")
    citation = yaml.safe_load(read("CITATION.cff"))
    assert META["version"] == d2lgpt.__version__ == citation["version"]
    assert importlib.metadata.version("d2lgpt") == META["version"]
    assert citation["repository-code"] == META["urls"]["Repository"]
    assert citation["title"] == yaml.safe_load(read("_config.yml"))["title"]
    assert citation["license"] == ["MIT", "CC-BY-4.0"]
    assert META["license"] == "MIT"


def make_targets():
    return set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))


def test_make_help_lists_every_job():
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", read("Makefile"), re.MULTILINE)).split())
    assert phony == make_targets()
    command = ["make", "--no-print-directory", "help"]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    listed = re.findall(r"^make ([a-z-]+) +\S.*$", text, re.MULTILINE)
    assert len(listed) == len(text.splitlines())
    assert set(listed) == phony
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    "name",
    [
        ".ci/run",
        ".github/workflows/ci.yml",
        ".pre-commit-config.yaml",
        "environment.yml",
        "README.md",
        "CONTRIBUTING.md",
        "book/how_to_use.md",
    ],
)
def test_make_knows_the_jobs_that_are_named(name):
    named = re.findall(r"(?:run: |`|entry: |^ +|\n)make (?:--silent )?([a-z-]+)", read(name))
    if name == ".ci/run":
        named += re.findall(r"^job (?:.* )?make ([a-z-]+)$", read(name), re.MULTILINE)
        assert {"test", "test-colab", "book", "lint-check"} <= set(named)
    assert set(named) <= make_targets()


def test_line_endings_are_pinned():
    """A checkout has the same bytes everywhere: data files are hashed, listings compared."""
    command = ["git", "ls-files", "--eol"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        pytest.skip("not a git checkout")
    for line in result.stdout.splitlines():
        index, _, attributes, *_ = line.split()
        assert index in ("i/lf", "i/none", "i/-text"), line
        assert attributes in ("attr/text=auto", "attr/text", "attr/-text"), line
        assert "eol=lf" in line or "attr/-text" in line, line
