"""Every row of the PyTorch ↔ Flax NNX dictionary is true.

Both snippets of a row run, each after the prelude in a namespace of its own, then the row's check:
assertions about the two results that hold only if the sentence on the page does.
"""

import ast
import inspect
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the dictionary needs both backends")
jax = pytest.importorskip("jax", reason="the dictionary needs both backends")
flax = pytest.importorskip("flax", reason="the dictionary needs both backends")

pytestmark = pytest.mark.usefixtures("compiled_as_for_a_reader")

FILE = Path(__file__).parents[1] / "book" / "dictionary.toml"
DICTIONARY = tomllib.loads(FILE.read_text("utf-8"))
ROWS = {row["id"]: row for group in DICTIONARY["group"] for row in group["row"]}
SIDES = {"PyTorch": "pytorch", "JAX": "jax"}


def numpy(array):
    """A NumPy array from an array of either backend, a variable that boxes one, or numbers."""
    if isinstance(array, torch.Tensor):
        return array.detach().cpu().numpy()
    return np.asarray(array)


def close(a, b, atol=None):
    """Whether two arrays of either backend differ by no more than `atol` anywhere.

    The default is what float32 allows: 64 units in the last place of the largest number. Rounding
    comes to a few of them for a function such as exp, and to one for every second or third term of
    a sum; the sums here have at most 64 terms. What the rows tell apart differs by hundreds.
    """
    a, b = numpy(a).astype("float64"), numpy(b).astype("float64")
    if atol is None:
        atol = 64 * np.spacing(np.float32(max(np.abs(a).max(), np.abs(b).max())))
    return bool(np.all(np.abs(a - b) <= atol))


def raises(error, function):
    """Whether calling the function raises the error."""
    try:
        function()
    except error:
        return True
    return False


def carry(source, target):
    """Copy a PyTorch linear layer, or a sequence of them, into its NNX counterpart."""
    if hasattr(source, "weight"):
        target.kernel[...] = jax.numpy.array(source.weight.detach().numpy().T)
        target.bias[...] = jax.numpy.array(source.bias.detach().numpy())
    elif isinstance(source, torch.nn.Sequential):
        for mine, other in zip(source, target.layers, strict=True):
            carry(mine, other)


def parameters_of(function):
    return list(inspect.signature(function).parameters)


HELPERS = {
    "np": np,
    "close": close,
    "raises": raises,
    "carry": carry,
    "parameters_of": parameters_of,
    "flax_version": tuple(map(int, flax.__version__.split(".")[:2])),
}


def prove(row):
    """Run the snippets and the check of one row."""
    torch.manual_seed(123)  # the same draws in whatever order the rows run
    sides, modules = {}, {}
    for label, key in SIDES.items():
        names = {"__name__": "dictionary"}
        exec(compile(DICTIONARY["prelude"][key], f"{label} prelude", "exec"), names)
        modules |= {k: v for k, v in names.items() if isinstance(v, types.ModuleType)}
        # In the check, PyTorch sees what the PyTorch snippet has defined, and JAX likewise.
        sides[label] = types.SimpleNamespace()
        exec(compile(row[key], f"{row['id']} in {label}", "exec"), names)
        vars(sides[label]).update(names)
    exec(compile(row["check"], f"check of {row['id']}", "exec"), HELPERS | modules | sides)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """Rows that save a file leave it in a folder of their own."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("error::DeprecationWarning:dictionary")
@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_the_row_is_true(row):
    prove(row)


@pytest.mark.parametrize(
    ("row", "key", "true", "false"),
    [
        ("gelu", "jax", "approximate=False", "approximate=True"),
        ("layer-norm", "jax", "epsilon=1e-5, ", ""),
        ("variance", "pytorch", ", unbiased=False", ""),
        ("adamw", "jax", "adamw(1.0)", "adamw(1.0, weight_decay=1e-2)"),
        ("linear", "pytorch", "nn.Linear(8, 3)", "nn.Linear(3, 8)"),
        ("bounds", "jax", "table[7]", "table[0]"),
        ("fast-variance", "jax", "use_fast_variance=False", "use_fast_variance=True"),
        ("rms-norm", "jax", "epsilon=1e-6", "epsilon=1e-5"),
        ("attention", "jax", "is_causal=True", "is_causal=False"),
        ("gradient", "jax", "(model(x) ** 2).mean()", "1.001 * (model(x) ** 2).mean()"),
        ("clip", "jax", "clip_by_global_norm(1.0)", "clip_by_global_norm(1.001)"),
        ("decay-groups", "jax", "weight_decay=0.1", "weight_decay=0.09"),
        ("momentum", "jax", "momentum=0.9", "momentum=0.9, nesterov=True"),
        ("schedule", "jax", "decay_steps=100", "decay_steps=101"),
        ("squared-error", "jax", "target = jnp.ones_like(x)", "target = 1.001 * jnp.ones_like(x)"),
    ],
)
def test_a_false_row_fails(row, key, true, false):
    assert true in ROWS[row][key]
    with pytest.raises((AssertionError, RuntimeError, TypeError)):
        prove(ROWS[row] | {key: ROWS[row][key].replace(true, false)})


def test_both_sides_start_from_the_same_numbers():
    one, other = {}, {}
    exec(DICTIONARY["prelude"]["pytorch"], one)
    exec(DICTIONARY["prelude"]["jax"], other)
    np.testing.assert_array_equal(one["x"].numpy(), np.asarray(other["x"]))
    np.testing.assert_array_equal(16 * one["x"].numpy() % 1, 0)
    assert one["x"].dtype == torch.float32 and other["x"].dtype == "float32"
    for row in ROWS.values():  # the two libraries round its points differently
        assert "linspace" not in row["pytorch"] + row["jax"]


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_the_check_is_about_both_sides(row):
    tree = ast.parse(row["check"])
    assert any(isinstance(node, ast.Assert) for node in ast.walk(tree))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert names & {"PyTorch", "torch", "nn", "F"}, "the check never looks at PyTorch"
    assert names & {"JAX", "jax", "jnp", "nnx", "optax"}, "the check never looks at JAX"


def test_the_rows_are_complete_and_fit_the_page():
    rows = [row for group in DICTIONARY["group"] for row in group["row"]]
    assert len(rows) >= 40
    assert len(ROWS) == len(rows), "an id is used twice"
    assert len({row["topic"] for row in rows}) == len(rows)
    for row in rows:
        assert set(row) == {"id", "topic", "difference", "pytorch", "jax", "check"}, row["id"]
        assert row["difference"].strip().endswith("."), row["id"]
    snippets = [(name, side[key]) for name, side in ROWS.items() for key in SIDES.values()]
    snippets += [("prelude", DICTIONARY["prelude"][key]) for key in SIDES.values()]
    wide = [(name, line) for name, code in snippets for line in code.splitlines() if len(line) > 54]
    assert not wide


def test_the_groups_cover_what_readers_look_for():
    titles = " ".join(group["title"].lower() for group in DICTIONARY["group"])
    wanted = "modules initializers parameters randomness modes gradients optimizers devices saving"
    assert [word for word in wanted.split() if word not in titles] == []
