"""Carrying weights over, and comparing arrays."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, randomize, small_config, to_numpy
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from d2lgpt.parity import copy_weights, max_abs_diff

pytestmark = pytest.mark.usefixtures("compiled_as_for_a_reader")

IDS = np.array([[1, 2, 3], [4, 5, 6]])


def gpt(backend, **overrides):
    return backend.scratch.GPTModel(small_config(**overrides), **backend.rngs())


def logits(model):
    model.eval()
    if isinstance(model, torch.nn.Module):
        with torch.no_grad():
            return model(torch.tensor(IDS))
    return model(jnp.array(IDS))


@pytest.mark.parametrize("target", BACKENDS, ids=lambda b: f"to-{b.name}")
@pytest.mark.parametrize("source", BACKENDS, ids=lambda b: f"from-{b.name}")
@pytest.mark.parametrize("abstract", [False, True], ids=["concrete", "abstract"])
def test_all_ways(source, target, abstract):
    a = randomize(gpt(PYTORCH, qkv_bias=True))
    if source is JAX:
        a = copy_weights(a, gpt(JAX, qkv_bias=True))
    make = lambda: gpt(target, qkv_bias=True)  # noqa: E731
    b = target.abstract(make) if abstract else make()
    assert copy_weights(a, b) is b
    assert max_abs_diff(logits(a), logits(b)) < 1e-5


def test_an_abstract_nnx_target_trains_with_fresh_dropout_afterwards():
    a = randomize(gpt(PYTORCH, drop_rate=0.5))
    b = copy_weights(a, JAX.abstract(lambda: gpt(JAX, drop_rate=0.5)))
    b.train()
    step = nnx.jit(lambda model, ids: model(ids))
    assert max_abs_diff(step(b, jnp.array(IDS)), step(b, jnp.array(IDS))) > 0
    first, second = (block.drop_shortcut.rngs for block in b.trf_blocks.layers)
    keys = [
        jax.random.key_data(jax.tree.leaves(nnx.state(r, nnx.RngKey))[0]) for r in (first, second)
    ]
    assert (keys[0] != keys[1]).any(), "each layer has a random stream of its own"


def test_no_memory_is_shared_with_a_pytorch_source():
    a = randomize(gpt(PYTORCH))
    for b in (gpt(JAX), JAX.abstract(lambda: gpt(JAX)), PYTORCH.abstract(lambda: gpt(PYTORCH))):
        before = to_numpy(logits(copy_weights(a, b)))
        with torch.no_grad():
            for parameter in a.parameters():
                parameter.mul_(1.5)
        assert max_abs_diff(logits(b), before) == 0


def test_an_abstract_nnx_target_is_filled_where_jax_puts_new_arrays():
    """On a machine with a GPU that is the GPU; here two CPU devices play the two."""
    code = """
import jax, torch
from flax import nnx
from d2lgpt.parity import copy_weights
jax.config.update("jax_default_device", jax.devices()[1])
make = lambda: nnx.Linear(2, 3, rngs=nnx.Rngs(0))
for source in (torch.nn.Linear(2, 3), jax.device_put(make(), jax.devices()[0])):
    copy = copy_weights(source, nnx.eval_shape(make))
    assert copy.kernel[...].devices() == {jax.devices()[1]}, copy.kernel[...].devices()
"""
    env = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_a_concrete_target_keeps_its_parameter_objects():
    a, b = gpt(JAX), gpt(PYTORCH)
    before = list(b.parameters())
    copy_weights(a, b)
    assert all(x is y for x, y in zip(before, b.parameters(), strict=True))


def test_the_orientation_of_a_square_matrix():
    """A wrong transpose of a square matrix would pass every check of shapes."""
    a = torch.nn.Linear(3, 3)
    b = copy_weights(a, nnx.Linear(3, 3, rngs=nnx.Rngs(0)))
    assert max_abs_diff(b.kernel[...], a.weight.T) == 0
    c = copy_weights(b, torch.nn.Linear(3, 3))
    assert torch.equal(c.weight, a.weight) and torch.equal(c.bias, a.bias)


def test_layers_of_the_frameworks():
    a = torch.nn.ModuleDict(
        {
            "emb": torch.nn.Embedding(5, 4),
            "ln": torch.nn.LayerNorm(4),
            "rms": torch.nn.RMSNorm(4, eps=1e-6),
            "many": torch.nn.ModuleList([torch.nn.Linear(4, 4, bias=False) for _ in range(11)]),
        }
    )
    randomize(a)

    class Twin(nnx.Module):
        def __init__(self, rngs):
            self.emb = nnx.Embed(5, 4, rngs=rngs)
            self.ln = nnx.LayerNorm(4, epsilon=1e-5, rngs=rngs)
            self.rms = nnx.RMSNorm(4, epsilon=1e-6, rngs=rngs)
            self.many = nnx.data([nnx.Linear(4, 4, use_bias=False, rngs=rngs) for _ in range(11)])

    b = copy_weights(a, Twin(nnx.Rngs(0)))
    x, y = a["emb"](torch.tensor(IDS % 5)), b.emb(jnp.array(IDS % 5))
    for name in ("ln", "rms"):
        assert max_abs_diff(a[name](x), getattr(b, name)(y)) < 1e-6
    for one, other in zip(a["many"], b.many, strict=True):
        assert max_abs_diff(one(x), other(y)) < 1e-6


def state(model):
    if isinstance(model, torch.nn.Module):
        return [p.detach().clone() for p in model.parameters()]
    return [np.array(leaf) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param))]


@pytest.mark.parametrize("target", BACKENDS, ids=lambda b: f"to-{b.name}")
@pytest.mark.parametrize("source", BACKENDS, ids=lambda b: f"from-{b.name}")
@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"context_length": 11}, r"pos_emb.*\(12, 24\).*pos_emb.*\(11, 24\)"),
        ({"n_layers": 3}, r"trf_blocks.*2.*of the target is not in the source"),
        ({"n_layers": 1}, r"trf_blocks.*1.*of the source is not in the target"),
        ({"qkv_bias": True}, r"W_query.bias \(24,\) of the target is not in the source"),
    ],
)
def test_nothing_is_written_if_anything_differs(source, target, change, named):
    a, b = gpt(source), gpt(target, **change)
    before = state(b)
    with pytest.raises(ValueError, match="(?s)nothing was copied.*" + named):
        copy_weights(a, b)
    assert all(max_abs_diff(x, y) == 0 for x, y in zip(before, state(b), strict=True))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
def test_an_abstract_source_has_nothing_to_give(backend):
    with pytest.raises(ValueError, match="no values"):
        copy_weights(backend.abstract(lambda: gpt(backend)), gpt(PYTORCH))


class Tied(torch.nn.Module):
    def __init__(self, tie: bool):
        super().__init__()
        self.emb = torch.nn.Embedding(5, 4)
        self.head = torch.nn.Linear(4, 5, bias=False)
        if tie:
            self.head.weight = self.emb.weight


def test_tied_weights_stay_tied():
    a = Tied(tie=True)
    with torch.device("meta"):
        b = Tied(tie=True)
    copy_weights(a, b)
    assert b.head.weight is b.emb.weight and torch.equal(b.emb.weight, a.emb.weight)
    with pytest.raises(ValueError, match="tied, but the target keeps"):
        copy_weights(a, Tied(tie=False))
    with pytest.raises(ValueError, match="tied, but the source keeps"):
        copy_weights(Tied(tie=False), a)


def test_state_that_cannot_be_carried_is_named():
    with torch.device("meta"):
        norm = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2, affine=False))
    source = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2, affine=False))
    with pytest.raises(ValueError, match=r"1\.running_mean"):
        copy_weights(source, norm)
    assert all(p.is_meta for p in norm.parameters())


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Pair:
    first: nnx.Param


class Hiding(nnx.Module):
    """Keeps a parameter in a container that has no counterpart in PyTorch."""

    def __init__(self):
        self.layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
        self.pair = nnx.data(Pair(nnx.Param(jnp.zeros(2))))


def test_no_parameter_is_passed_over_in_silence():
    class Twin(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

    for source, target in [(Twin(), Hiding()), (Hiding(), Twin())]:
        with pytest.raises(ValueError, match=r"Hiding.*pair\.first"):
            copy_weights(source, target)


def test_what_is_no_module():
    with pytest.raises(TypeError, match="dict"):
        copy_weights({}, gpt(PYTORCH))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_target_keeps_its_dtype(dtype):
    a = gpt(PYTORCH).to(getattr(torch, dtype))
    b = copy_weights(a, gpt(JAX))
    assert b.tok_emb.embedding.dtype == jnp.float32
    assert max_abs_diff(b.tok_emb.embedding[...], a.tok_emb.weight) == 0
    c = copy_weights(b, gpt(PYTORCH).to(getattr(torch, dtype)))
    assert c.tok_emb.weight.dtype == getattr(torch, dtype)
    assert torch.equal(c.tok_emb.weight, a.tok_emb.weight)


def test_bfloat16_from_jax():
    a = nnx.Linear(2, 3, param_dtype=jnp.bfloat16, rngs=nnx.Rngs(0))
    b = copy_weights(a, torch.nn.Linear(2, 3))
    assert max_abs_diff(b.weight.T, a.kernel[...]) == 0


floats = hnp.arrays(
    np.float32, hnp.array_shapes(min_dims=0), elements=st.floats(-1e6, 1e6, width=32)
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(floats, st.data())
def test_max_abs_diff_is_the_largest_difference(a, data):
    b = data.draw(hnp.arrays(np.float32, a.shape, elements=st.floats(-1e6, 1e6, width=32)))
    expected = max(
        (abs(float(x) - float(y)) for x, y in zip(a.flat, b.flat, strict=True)), default=0
    )
    assert max_abs_diff(torch.tensor(a), jnp.array(b)) == expected
    assert max_abs_diff(a, a) == 0


def test_max_abs_diff_of_odd_arrays():
    inf = float("inf")
    assert max_abs_diff(torch.tensor([-inf, 1.0]), jnp.array([-inf, 2.0])) == 1
    assert max_abs_diff([inf], [-inf]) == inf
    assert np.isnan(max_abs_diff([float("nan")], [1.0]))
    assert max_abs_diff(np.zeros((0, 3)), torch.zeros(0, 3)) == 0
    assert max_abs_diff(torch.ones(2, dtype=torch.bfloat16), jnp.ones(2, dtype=jnp.bfloat16)) == 0
    with pytest.raises(ValueError, match=r"\(2,\) and \(1, 2\)"):
        max_abs_diff(np.zeros(2), np.zeros((1, 2)))


FORMS = [np.array, torch.tensor, jnp.array]
LONG = 2**53


@pytest.mark.parametrize("one", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_max_abs_diff_of_complex_numbers(one, other):
    assert max_abs_diff(one([1j]), other([5j])) == 4
    assert max_abs_diff(one([3 + 4j]), other([0j])) == 5
    assert max_abs_diff(one([3 + 4j, 1]), other([3.0, 1.0])) == 4
    assert max_abs_diff(one([1 + 1j]), other([1 + 1j])) == 0
    inf, nan = float("inf"), float("nan")
    assert max_abs_diff(one([complex(inf, 1)]), other([complex(inf, 1)])) == 0
    assert max_abs_diff(one([complex(inf, 1)]), other([complex(-inf, 1)])) == inf
    assert np.isnan(max_abs_diff(one([complex(nan, 1)]), other([complex(1, inf)])))


def test_max_abs_diff_of_tensors_in_other_forms():
    z = torch.tensor([1 + 2j])
    assert max_abs_diff(z.conj(), [1 - 2j]) == 0
    assert max_abs_diff(z.conj().imag, [-2]) == 0
    assert max_abs_diff(torch.eye(3).to_sparse(), np.eye(3)) == 0
    assert max_abs_diff(torch.ones(2, requires_grad=True), [1, 3]) == 2
    assert max_abs_diff(nnx.Param(jnp.ones(2)), [1, 3]) == 2


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "pytorch"])
def test_max_abs_diff_of_long_whole_numbers_is_exact(make):
    """float64 rounds 2**53 + 1 to 2**53."""
    a = make([LONG, 7])
    assert max_abs_diff(a, make([LONG + 1, 7])) == 1
    assert max_abs_diff(a, make([-LONG - 1, 7])) == 2.0**54  # rounded once, at the end
    assert max_abs_diff(make(LONG), make(LONG + 3)) == 3
    assert max_abs_diff(make([LONG + 1]), make([float(LONG)])) == 1
    assert max_abs_diff(make([LONG + 1]), make([0.5])) == LONG
    assert np.isnan(max_abs_diff(make([LONG + 1]), make([float("nan")])))
    assert max_abs_diff(make([LONG + 1]), make([float("inf")])) == float("inf")
    assert max_abs_diff(make([LONG + 1]), make([LONG + 4j])) == pytest.approx(17**0.5)
    lowest, highest = make([-(2**63)]), np.array([2**64 - 1], dtype=np.uint64)
    assert max_abs_diff(lowest, highest) == 2.0**64 + 2.0**63
    assert max_abs_diff(highest, highest - np.uint64(1)) == 1


@pytest.mark.parametrize("one", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_max_abs_diff_of_truth_values_and_small_whole_numbers(one, other):
    assert max_abs_diff(one([True, False]), other([True, True])) == 1
    assert max_abs_diff(one([True, False]), other([True, False])) == 0
    assert max_abs_diff(one([True]), other([0.25])) == 0.75
    assert max_abs_diff(np.array([-128], np.int8), other([127])) == 255
    assert max_abs_diff(np.array([0], np.uint8), other([255])) == 255


@pytest.mark.parametrize("one", FORMS)
@pytest.mark.parametrize("other", FORMS)
def test_a_nan_in_the_same_places_is_no_parity(one, other):
    assert np.isnan(max_abs_diff(one([float("nan"), 1.0]), other([float("nan"), 1.0])))


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"]
)
def test_max_abs_diff_in_low_precision(dtype):
    pairs = [jnp.array([1.0, 2.0], dtype), torch.tensor([1.0, 1.5]).to(getattr(torch, dtype))]
    pairs += [np.asarray(pairs[0])]
    assert max_abs_diff(pairs[0], pairs[1]) == max_abs_diff(pairs[1], pairs[2]) == 0.5
    assert max_abs_diff(pairs[0], pairs[2]) == 0
    assert max_abs_diff(pairs[0], [1, 4]) == 2
    # Their difference in float16 would be infinite.
    assert max_abs_diff(np.array([6e4], np.float16), np.array([-6e4], np.float16)) == 120_000
    assert max_abs_diff(jnp.array([-7], "int4"), torch.tensor([7])) == 14


def test_max_abs_diff_keeps_what_is_longer_than_float64():
    a = np.array([1.0], np.longdouble)
    assert max_abs_diff(a, np.nextafter(a, 2)) == np.finfo(np.longdouble).eps


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (["a"], "not a list of <U1"),
        ([b"a"], "not a list of |S1"),
        (None, "not a NoneType of object"),
        ([None, 1.0], "not a list of object"),
        (np.array(["2026-08-01"], "datetime64[D]"), r"not a ndarray of datetime64\[D\]"),
        (np.array([1], "timedelta64[s]"), r"not a ndarray of timedelta64\[s\]"),
        (np.zeros(1, [("a", float)]), "not a ndarray of "),
    ],
    ids=str,
)
def test_what_has_no_difference(what, words):
    for pair in ((what, what), (what, np.zeros(1)), (torch.zeros(1), what)):
        with pytest.raises(TypeError, match="max_abs_diff compares numbers, " + words):
            max_abs_diff(*pair)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
def test_an_abstract_array_has_no_difference(backend):
    array = backend.abstract(lambda: backend.array(np.zeros(2)))
    array = array if backend is JAX else array.to("meta")
    with pytest.raises(ValueError, match="an abstract array has a shape, but no numbers"):
        max_abs_diff(array, np.zeros(2))


def test_a_step_after_copying_is_compiled_once():
    """Copied arrays are as free to move as those that NNX draws itself."""
    source = torch.nn.Linear(3, 3)
    drawn = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    target = copy_weights(source, nnx.Linear(3, 3, rngs=nnx.Rngs(0)))
    abstract = copy_weights(source, nnx.eval_shape(lambda: nnx.Linear(3, 3, rngs=nnx.Rngs(0))))
    for layer in (drawn, target, abstract):
        assert not layer.kernel[...].committed
    # What was put on a device on purpose stays committed to it.
    placed = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
    placed.kernel[...] = jax.device_put(placed.kernel[...], jax.devices()[0])
    assert copy_weights(source, placed).kernel[...].committed
