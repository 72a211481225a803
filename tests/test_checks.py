"""Calls outside the domain: the same clear error in both backends."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, small_config
from flax import nnx

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
models = pytest.mark.parametrize("name", ["DummyGPTModel", "GPTModel"])


def make(backend, name="GPTModel", **overrides):
    return getattr(backend.scratch, name)(small_config(**overrides), **backend.rngs())


@both
@models
@pytest.mark.parametrize("T", [1, 12])
def test_length_one_and_the_whole_context_work(backend, name, T):
    assert make(backend, name)(backend.array(np.zeros((1, T), dtype=int))).shape == (1, T, 50)


WRONG = [
    (np.zeros((1, 13), dtype=int), ValueError, "13 tokens.*context length is 12"),
    (np.zeros((1, 0), dtype=int), ValueError, "empty"),
    (np.zeros(4, dtype=int), ValueError, r"\(batch, tokens\), not \(4,\)"),
    (np.array([[1, 50]]), ValueError, "token id 50 is outside.*0 to 49"),
    (np.array([[-1, 4]]), ValueError, "token id -1 is outside"),
    (np.array([[1.0, 4.0]], dtype="float32"), TypeError, "integers, not .*float32"),
    (np.zeros((0, 3), dtype=int), ValueError, "the batch is empty"),
    (np.array([[1, 4]], dtype="uint8"), TypeError, "int32 or int64 integers, not .*uint8"),
]


@both
@models
@pytest.mark.parametrize(("ids", "error", "message"), WRONG)
def test_ids_that_no_model_takes(backend, name, ids, error, message):
    with pytest.raises(error, match=message):
        make(backend, name)(backend.array(ids))


@pytest.mark.parametrize(("ids", "error", "message"), WRONG[:3] + WRONG[5:])
def test_shapes_and_dtypes_are_checked_under_jit_too(ids, error, message):
    with pytest.raises(error, match=message):
        nnx.jit(lambda model, ids: model(ids))(make(JAX), jnp.array(ids))


def test_a_traced_model_runs():
    ids = jnp.array([[1, 2]])
    assert nnx.jit(lambda model, ids: model(ids))(make(JAX), ids).shape == (1, 2, 50)
    model = make(JAX)
    model.eval()
    assert jax.eval_shape(model, ids).shape == (1, 2, 50)


def test_a_compiled_model_runs_in_pytorch():
    model = make(PYTORCH).eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    ids = torch.tensor([[1, 2, 3]])
    assert torch.equal(compiled(ids), model(ids))


@both
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_both_usual_integers_work(backend, dtype):
    ids = backend.array(np.array([[1, 2]], dtype=dtype))
    assert make(backend)(ids).shape == (1, 2, 50)


@both
@models
def test_ids_straight_from_the_tokenizer_are_no_array(backend, name):
    with pytest.raises(TypeError, match=r"must be an array.*jnp\.array.*not a list"):
        make(backend, name)([[1, 2]])


@both
@pytest.mark.parametrize(
    ("entry", "value"), [("n_heads", 5), ("drop_rate", 2), ("n_layers", 0), ("size", 1)]
)
@models
def test_an_impossible_configuration_is_named(backend, name, entry, value):
    with pytest.raises(ValueError, match=entry):
        getattr(backend.scratch, name)({**small_config(), entry: value}, **backend.rngs())


@both
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_heads": 5}, "24 is not a multiple of 5"),
        ({"num_heads": 0}, "num_heads"),
        ({"num_heads": 24 / 8}, "num_heads must be a whole number.*3.0"),
        ({"num_heads": None}, "num_heads must be a whole number.*None"),
        ({"dropout": -1}, "dropout"),
        ({"dropout": None}, "dropout.*None"),
    ],
)
def test_impossible_attention_is_named(backend, changes, message):
    args = {"d_in": 24, "d_out": 24, "context_length": 4, "dropout": 0.0, "num_heads": 3}
    with pytest.raises(ValueError, match=message):
        backend.scratch.MultiHeadAttention(**{**args, **changes}, **backend.rngs())


@both
def test_attention_and_block_check_the_length(backend):
    x = backend.array(np.zeros((1, 13, 24), dtype="float32"))
    block = backend.scratch.TransformerBlock(small_config(), **backend.rngs())
    for module in (block, block.att):
        with pytest.raises(ValueError, match=r"13 tokens.*context length is 12"):
            module(x)
