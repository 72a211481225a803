"""Settings and arguments of careful users: the models work under them, or say what to do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, small_config, to_numpy
from flax import nnx

from d2lgpt.jax.sampling import random_key

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
IDS = np.array([[1, 2, 3], [4, 5, 6]])
GPT2_OPTIONS = {"pos": "learned", "norm": "layer", "act": "gelu", "bias": True}


def models(backend) -> dict:
    """One of each kind, small."""
    cfg = small_config(drop_rate=0.0)
    return {
        "dummy": backend.scratch.DummyGPTModel(cfg, **backend.rngs()),
        "Part I": backend.scratch.GPTModel(cfg, **backend.rngs()),
        "modern": backend.root.GPT(50, 24, 3, 2, **backend.rngs()),
        "GPT-2": backend.root.GPT(50, 24, 3, 2, **GPT2_OPTIONS, **backend.rngs()),
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_another_default_dtype_in_pytorch(dtype):
    before = {name: model.eval() for name, model in models(PYTORCH).items()}
    expected = {name: model(torch.tensor(IDS)) for name, model in before.items()}
    torch.set_default_dtype(dtype)
    try:
        for name, model in before.items():  # made before, in float32
            torch.testing.assert_close(model(torch.tensor(IDS)), expected[name])
        for model in models(PYTORCH).values():
            logits = model(torch.tensor(IDS))
            assert logits.dtype == dtype and logits.isfinite().all()
    finally:
        torch.set_default_dtype(torch.float32)


def test_gradients_for_each_sample_in_pytorch():
    """vmap over a model: the ids have no values to look at there."""
    model = models(PYTORCH)["modern"].eval()
    one = torch.vmap(lambda ids: model(ids[None])[0])(torch.tensor(IDS))
    torch.testing.assert_close(one, model(torch.tensor(IDS)), atol=1e-5, rtol=0)


@both
def test_layer_normalization_of_half_precision(backend):
    """257² is beyond float16; the variance of ±257 is not, where it is computed in float32."""
    norm = backend.scratch.LayerNorm(2, **backend.rngs())
    x = np.array([-257, 257], dtype="float16")
    out = norm(torch.tensor(x) if backend is PYTORCH else jnp.array(x))
    assert str(out.dtype).endswith("float16")
    np.testing.assert_allclose(to_numpy(out).astype("float32"), [-1, 1], atol=2**-10)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("jax_numpy_rank_promotion", "raise"), ("jax_numpy_dtype_promotion", "strict")],
)
def test_strict_settings_of_jax(flag, value):
    before = getattr(jax.config, flag)
    jax.config.update(flag, value)
    try:
        made = models(JAX)
        for model in made.values():
            assert nnx.jit(lambda m, ids: m(ids))(model, jnp.array(IDS)).shape == (2, 3, 50)
        for cache in (False, True):
            ids = made["modern"].generate(jnp.array(IDS), 2, 0.7, 3, cache=cache)
            assert ids.shape == (2, 5)
    finally:
        jax.config.update(flag, before)


@both
def test_scalars_of_either_backend(backend):
    model, prompt = models(backend)["modern"], backend.array(IDS)
    expected = to_numpy(model.generate(prompt, 4, 0))
    for zero, four in (
        (jnp.array(0.0), jnp.int32(4)),
        (torch.tensor(0.0), torch.tensor(4)),
        (np.float32(0), np.int64(4)),
    ):
        np.testing.assert_array_equal(to_numpy(model.generate(prompt, four, zero)), expected)
    for wrong in (jnp.array([0.5]), torch.ones(2), "warm"):
        with pytest.raises(ValueError, match="temperature must be a number"):
            model.generate(prompt, 2, wrong)


def test_seeds_of_jax():
    for seed in (3, np.int64(3), jnp.int32(3), torch.tensor(3), jax.random.key(3)):
        assert (jax.random.key_data(random_key(seed)) == jax.random.key_data(random_key(3))).all()
    for wrong in (1.5, "3", True, None, jnp.arange(3), jax.random.split(jax.random.key(0))):
        with pytest.raises(ValueError, match="seed must be a whole number or a key"):
            random_key(wrong)


@both
def test_arrays_of_the_other_backend(backend):
    others = {"pytorch": [jnp.array(IDS), IDS], "jax": [torch.tensor(IDS)]}[backend.name]
    mine, theirs = {"pytorch": ("PyTorch", "jax.Array|numpy"), "jax": ("JAX", "torch.Tensor")}[
        backend.name
    ]
    for model in models(backend).values():
        for ids in others:
            with pytest.raises(TypeError, match=rf"in {mine} and takes token ids .*({theirs})"):
                model(ids)
            if hasattr(model, "generate"):
                with pytest.raises(TypeError, match=f"in {mine}"):
                    model.generate(ids, 1)
