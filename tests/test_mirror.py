"""The two packages are mirror images: modules, public names, their order, and their signatures."""

import ast
import importlib
import inspect
import textwrap
from pathlib import Path

import both  # noqa: F401  (imports both backends)
import pytest
from flax import nnx

import d2lgpt

ROOT = Path(d2lgpt.__file__).parent
MODULES = sorted(path.name for path in ROOT.joinpath("torch").glob("*.py"))
# What only one backend needs, because the frameworks differ. Each has its reason on its page.
ONLY_JAX = {
    "cache.py": ["fill_with_cache"],
    "gpt.py": ["Linear"],
    "loading.py": ["TiedHead"],
    "sampling.py": ["sample_buffer", "random_key"],
    "scratch.py": ["fill_buffer"],
    "training.py": ["train_step", "summed_loss"],
}

#: Where random numbers come from: JAX has explicit keys, PyTorch a generator with a state.
RANDOM = {"seed": "generator", "key": "generator"}
#: Modules made from others, which draw nothing.
WRAPPERS = ["CachedAttention", "CachedPositions", "Place"]


def public_names(path: Path) -> list[str]:
    tree = ast.parse(path.read_text("utf-8"))
    definitions = (ast.FunctionDef, ast.ClassDef)
    return [n.name for n in tree.body if isinstance(n, definitions) and n.name[0] != "_"]


def test_the_same_modules():
    assert sorted(path.name for path in ROOT.joinpath("jax").glob("*.py")) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_the_same_names_in_the_same_order(module):
    jax = public_names(ROOT / "jax" / module)
    for name in ONLY_JAX.get(module, []):
        jax.remove(name)
    assert public_names(ROOT / "torch" / module) == jax


def test_the_same_names_at_the_top():
    import d2lgpt.jax
    import d2lgpt.torch

    assert d2lgpt.torch.__all__ == d2lgpt.jax.__all__


PAIRS = [
    (module.removesuffix(".py"), name)
    for module in MODULES
    for name in public_names(ROOT / "torch" / module)
]


def load(backend: str, module: str, name: str):
    return getattr(importlib.import_module(f"d2lgpt.{backend}.{module}"), name)


def signature(thing) -> inspect.Signature:
    return inspect.signature(thing.__init__ if inspect.isclass(thing) else thing)


@pytest.mark.parametrize(("module", "name"), PAIRS)
def test_the_same_signatures(module, name):
    one, other = (signature(load(b, module, name)) for b in ("torch", "jax"))
    names = list(other.parameters)
    cls = load("jax", module, name)
    is_module = inspect.isclass(cls) and issubclass(cls, nnx.Module)
    if "rngs" in names or (is_module and name not in WRAPPERS):
        assert names[-1] == "rngs", "what makes NNX modules takes rngs last"
        assert other.parameters["rngs"].kind is inspect.Parameter.KEYWORD_ONLY
        names.pop()
    expected = [n for n in one.parameters if n not in ("args", "kwargs")]
    assert [n if n in expected else RANDOM.get(n) for n in names] == expected
    for theirs, ours in zip(names, expected, strict=True):
        if theirs == ours:
            assert one.parameters[ours].default == other.parameters[theirs].default


@pytest.mark.parametrize(("module", "name"), PAIRS)
def test_the_same_sub_modules_in_the_same_order(module, name):
    """What a constructor sets, in the order in which it sets it (seeds depend on it)."""
    classes = [load(b, module, name) for b in ("torch", "jax")]
    if not all(inspect.isclass(c) for c in classes):
        pytest.skip("a function")
    assert attributes_set(classes[0]) == attributes_set(classes[1])


def attributes_set(cls) -> list[str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    return [
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Attribute)
    ]


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize(("module", "name"), PAIRS)
def test_every_public_thing_says_what_it_is(backend, module, name):
    doc = inspect.getdoc(load(backend, module, name))
    assert doc and doc.splitlines()[0].endswith((".", ":", "block."))
    other = inspect.getdoc(load("jax" if backend == "torch" else "torch", module, name))
    assert doc.splitlines()[0] == other.splitlines()[0], "the same words in both backends"
