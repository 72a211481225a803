"""The configurable GPT of Part II: census, parity of every option, rotary positions, causality."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, in_one_go, randomize, to_numpy
from both import twins as both_twins
from facts import assert_fact
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lgpt.jax import gpt as jax_gpt
from d2lgpt.parity import copy_weights, max_abs_diff
from d2lgpt.torch import gpt as torch_gpt

MODULES = {"pytorch": torch_gpt, "jax": jax_gpt}
both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
twins = partial(both_twins, modules=(torch_gpt, jax_gpt))
GPT2 = {"pos": "learned", "norm": "layer", "act": "gelu", "bias": True}


def small(backend, **options):
    shape = {"num_hiddens": 16, "num_heads": 2, "num_blks": 2, "max_len": 8}
    return MODULES[backend.name].GPT(11, **{**shape, **options}, **backend.rngs())


@both
def test_the_published_census(backend):
    cls, count = MODULES[backend.name].GPT, backend.root.count_parameters
    model = backend.abstract(lambda: cls(28, **backend.rngs()))
    assert_fact("lm.params", count(model))
    blocks = list(model.blks) if backend is PYTORCH else model.blks.layers
    assert count(blocks[0]) == 787_200
    gpt2 = backend.abstract(lambda: cls(50257, 768, 12, 12, **GPT2, **backend.rngs()))
    assert_fact("gpt2.params", count(gpt2))
    blocks = list(gpt2.blks) if backend is PYTORCH else gpt2.blks.layers
    assert count(blocks[0]) == 7_087_872


@both
def test_logits_of_the_published_shape(backend):
    model = MODULES[backend.name].GPT(28, num_blks=1, **backend.rngs())
    assert_fact("lm.shape", tuple(model(backend.array(np.zeros((2, 16), dtype=int))).shape))


options = st.fixed_dictionaries(
    {
        "pos": st.sampled_from(["rope", "learned"]),
        "norm": st.sampled_from(["rms", "layer"]),
        "act": st.sampled_from(["swiglu", "gelu"]),
        "pre_norm": st.booleans(),
        "bias": st.booleans(),
        "num_heads": st.sampled_from([1, 2, 3]),
        "num_hiddens": st.sampled_from([12, 24]),
        "num_blks": st.integers(0, 2),
    }
)


@settings(max_examples=6, deadline=None, derandomize=True)
@given(options, st.integers(1, 8))
def test_both_backends_are_one_function(chosen, T):
    a, b = twins("GPT", 13, max_len=8, **chosen)
    ids = np.random.default_rng(T).integers(13, size=(2, T))
    with torch.no_grad():
        assert max_abs_diff(a(torch.tensor(ids)), in_one_go(b, jnp.array(ids))) < 1e-5


@both
def test_rotation_is_multiplication_by_a_complex_number(backend):
    B, H, T, d = 2, 3, 7, 8
    X = np.random.default_rng(0).normal(size=(B, H, T, d)).astype("float32")
    z = X[..., 0::2] + 1j * X[..., 1::2]
    turned = z * np.exp(1j * np.outer(np.arange(T), 10000.0 ** (-np.arange(0, d, 2) / d)))
    expected = np.stack([turned.real, turned.imag], axis=-1).reshape(X.shape)
    if backend is JAX:  # (B, T, H, d) there: its fused kernel wants the heads behind the positions
        got = np.swapaxes(jax_gpt.rotate(jnp.array(np.swapaxes(X, 1, 2))), 1, 2)
    else:
        got = torch_gpt.rotate(torch.tensor(X)).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5)
    np.testing.assert_array_equal(got[:, :, 0], X[:, :, 0])  # position 0 is not turned


@both
def test_rotation_keeps_the_type_of_numbers(backend):
    X = backend.array(np.ones((1, 3, 2, 4), np.float32))
    rotate = (jax_gpt if backend is JAX else torch_gpt).rotate
    half = X.astype(jnp.bfloat16) if backend is JAX else X.bfloat16()
    assert rotate(half).dtype == half.dtype
    assert rotate(X).dtype == X.dtype


@both
@pytest.mark.parametrize("pos", ["rope", "learned"])
def test_the_future_is_hidden(backend, pos):
    model = small(backend, pos=pos)
    ids = np.arange(8)[None] % 11
    out = to_numpy(model(backend.array(ids)))
    ids = ids.copy()
    ids[0, 5] = 9
    other = to_numpy(model(backend.array(ids)))
    assert (out[:, :5] == other[:, :5]).all()
    assert (out[:, 5:] != other[:, 5:]).any(axis=(0, 2)).all()


@both
def test_positions_matter_with_rotary_attention(backend):
    """Without positions, attention could not tell the order of the tokens before the last."""
    model = small(backend, num_blks=1)
    one, other = (
        to_numpy(model(backend.array(np.array([ids]))))[0, -1] for ids in ([1, 2, 3], [2, 1, 3])
    )
    assert np.abs(one - other).max() > 1e-6


@both
def test_the_initialization_that_is_ours(backend):
    model = MODULES[backend.name].GPT(500, 128, 4, 0, pos="learned", **backend.rngs())
    for table in (model.token_emb, model.pos_emb):
        weights = to_numpy(table.weight if backend is PYTORCH else table.embedding[...])
        assert weights.std() == pytest.approx(0.02, rel=0.02)


@both
def test_epsilons_are_equal_and_stated(backend):
    x = backend.array(np.float32([[1e-3, -1e-3] * 4]))
    make = lambda norm: MODULES[backend.name].make_norm(norm, 8, **backend.rngs())  # noqa: E731
    np.testing.assert_allclose(np.abs(to_numpy(make("layer")(x))), 0.3015, atol=5e-5)  # 1e-5
    np.testing.assert_allclose(np.abs(to_numpy(make("rms")(x))), 0.7071, atol=5e-5)  # 1e-6
    far = backend.array(np.float32([[10000, 10001, 10002, 10003]]))
    norm = MODULES[backend.name].make_norm("layer", 4, **backend.rngs())
    np.testing.assert_allclose(
        to_numpy(norm(far))[0], [-1.3416, -0.4472, 0.4472, 1.3416], atol=6e-5
    )


@both
@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"pos": "sine"}, "pos must be one of 'rope', 'learned'"),
        ({"norm": "batch"}, "norm must be one of 'rms', 'layer'"),
        ({"act": "relu"}, "act must be one of 'gelu', 'swiglu'"),
        ({"num_heads": 3}, "16 is not a multiple of 3"),
        ({"num_hiddens": 15, "num_heads": 3}, "must be even, not 5"),
    ],
)
def test_impossible_choices(backend, choice, message):
    with pytest.raises(ValueError, match=message):
        small(backend, **choice)(backend.array(np.array([[1]])))


@both
@pytest.mark.parametrize("ids", [[[11]], [[-1]], [[0] * 9], [[]]])
def test_ids_that_the_model_cannot_take(backend, ids):
    with pytest.raises(ValueError, match="token"):
        small(backend)(backend.array(np.array(ids, dtype=int)))


def test_a_subclass_can_change_the_attention():
    """What exercise 10.1 asks for: an attention that passes no causal flag."""

    class OpenTorch(torch_gpt.GPT):
        class CausalAttention(torch_gpt.GPT.CausalAttention):
            is_causal = False

    class OpenJax(jax_gpt.GPT):
        class CausalAttention(jax_gpt.GPT.CausalAttention):
            is_causal = False

    a = randomize(OpenTorch(11, 16, 2, 1)).eval()
    b = copy_weights(a, OpenJax(11, 16, 2, 1, rngs=nnx.Rngs(0)))
    ids = np.array([[1, 2, 3]])
    out = a(torch.tensor(ids))
    assert max_abs_diff(out, b(jnp.array(ids))) < 1e-5
    assert max_abs_diff(out[:, :1], a(torch.tensor(np.array([[1, 2, 4]])))[:, :1]) > 1e-3


@both
def test_sub_layers_can_be_exchanged(backend):
    module = MODULES[backend.name]
    calls = []
    block = module.TransformerBlock(
        8,
        2,
        attn_factory=lambda: (calls.append("attention"), module.FeedForward(8, **backend.rngs()))[
            1
        ],
        ffn_factory=lambda: (calls.append("ffn"), module.FeedForward(8, "gelu", **backend.rngs()))[
            1
        ],
        **backend.rngs(),
    )
    assert calls == ["attention", "ffn"] and block.ffn.act == "gelu"
    assert block(backend.array(np.zeros((1, 2, 8), dtype="float32"))).shape == (1, 2, 8)
