"""Greedy generation: the published ids, the traps, and one compilation for any number of tokens."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, fresh_compilations, small_config, to_numpy, twins
from facts import assert_fact
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from d2lgpt.config import GPT_CONFIG_124M
from d2lgpt.parity import copy_weights
from d2lgpt.tokenizer import gpt2_tokenizer

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)


@pytest.fixture(scope="module")
def gpt2_small():
    """GPT-2 small as it comes out of seed 123, in both backends."""
    torch.manual_seed(123)
    a = PYTORCH.scratch.GPTModel(GPT_CONFIG_124M).eval()
    abstract = nnx.eval_shape(lambda: JAX.scratch.GPTModel(GPT_CONFIG_124M, rngs=nnx.Rngs(0)))
    return {"pytorch": a, "jax": copy_weights(a, abstract)}


@both
def test_the_published_ids(backend, gpt2_small):
    prompt = gpt2_tokenizer().encode("Hello, I am")
    assert_fact("gen.prompt", prompt)
    out = backend.scratch.generate_text_simple(
        gpt2_small[backend.name], backend.array([prompt]), max_new_tokens=6, context_size=1024
    )
    assert_fact("gen.ids", out[0])
    assert_fact("gen.text", gpt2_tokenizer().decode(to_numpy(out)[0].tolist()))


def greedy_by_hand(model, ids: list[int], new: int, context: int) -> list[int]:
    for _ in range(new):
        with torch.no_grad():
            logits = model(torch.tensor([ids[-context:]]))[0, -1]
        ids = [*ids, int(logits.argmax())]
    return ids


@settings(max_examples=6, deadline=None, derandomize=True)
@given(length=st.integers(1, 20), new=st.integers(0, 20), context=st.integers(1, 12))
def test_both_backends_are_the_definition(length, new, context):
    a, b = twins("GPTModel", small_config(n_layers=1))
    prompts = np.random.default_rng(length).integers(50, size=(2, length))
    expected = [greedy_by_hand(a, row.tolist(), new, context) for row in prompts]
    for backend, model in ((PYTORCH, a), (JAX, b)):
        ids = backend.array(prompts)
        out = backend.scratch.generate_text_simple(model, ids, new, context)
        assert to_numpy(out).tolist() == expected
        assert out.dtype == ids.dtype


@pytest.fixture
def pair():
    return dict(
        zip(("pytorch", "jax"), twins("GPTModel", small_config(drop_rate=0.9)), strict=True)
    )


@both
def test_a_model_in_training_mode_does_not_sample_with_dropout(backend, pair):
    model, prompt = pair[backend.name], backend.array([[1, 2, 3]])
    model.eval()
    expected = to_numpy(backend.scratch.generate_text_simple(model, prompt, 8, 12)).tolist()
    model.train()
    got = to_numpy(backend.scratch.generate_text_simple(model, prompt, 8, 12)).tolist()
    assert got == expected
    flag = model.drop_emb.training if backend is PYTORCH else not model.drop_emb.deterministic
    assert flag, "the model is in training mode afterwards, as it was before"


def test_each_sub_module_is_left_in_its_own_mode(pair):
    for backend in BACKENDS:
        model = pair[backend.name]
        model.train()
        model.drop_emb.eval()
        backend.scratch.generate_text_simple(model, backend.array([[1]]), 1, 12)
        assert model.trf_blocks is not None
        off, on = model.drop_emb, list_blocks(model)[0].drop_shortcut
        if backend is PYTORCH:
            assert (off.training, on.training) == (False, True)
        else:
            assert (off.deterministic, on.deterministic) == (True, False)


def list_blocks(model):
    return list(model.trf_blocks) if isinstance(model, torch.nn.Module) else model.trf_blocks.layers


def test_no_graph_is_kept(pair):
    out = PYTORCH.scratch.generate_text_simple(pair["pytorch"], torch.tensor([[1, 2]]), 2, 12)
    assert not out.requires_grad and not out.is_inference()


@both
@pytest.mark.parametrize(
    ("prompt", "new", "context", "message"),
    [
        (np.zeros((1, 0), dtype=int), 3, 12, "empty"),
        (np.array([[1, 50]]), 3, 12, "token id 50 is outside the vocabulary"),
        (np.array([[1, -2]]), 3, 12, "token id -2"),
        (np.array([1, 2]), 3, 12, r"\(batch, tokens\)"),
        (np.array([[1, 2]]), -1, 12, "max_new_tokens.*-1"),
        (np.array([[1, 2]]), 3.0, 12, "max_new_tokens must be a whole number.*3.0"),
        (np.array([[1, 2]]), 3, 1024 / 2, "context_size must be a whole number.*512.0"),
        (np.array([[1, 2]]), 3, 0, "context_size.*0"),
        (np.array([[1, 2]]), 3, 13, "context_size.*12.*13"),
    ],
)
def test_impossible_calls(backend, pair, prompt, new, context, message):
    with pytest.raises(ValueError, match=message):
        backend.scratch.generate_text_simple(
            pair[backend.name], backend.array(prompt), new, context
        )


@both
def test_a_dtype_that_cannot_hold_the_ids_is_an_error(backend, pair):
    """In uint8 token 300 would come back as 44, and the mark for NaN as token 255."""
    with pytest.raises(TypeError, match=r"int32 or int64 integers, not .*uint8"):
        prompt = backend.array(np.array([[1, 2]], dtype="uint8"))
        backend.scratch.generate_text_simple(pair[backend.name], prompt, 3, 12)


@both
def test_nan_logits_are_an_error_never_a_token(backend, pair):
    model = pair[backend.name]
    if backend is PYTORCH:
        model.final_norm.shift.data[0] = float("nan")
    else:
        model.final_norm.shift[...] = model.final_norm.shift[...].at[0].set(jnp.nan)
    with pytest.raises(ValueError, match="NaN"):
        backend.scratch.generate_text_simple(model, backend.array([[1, 2]]), 3, 12)


@both
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_single_broken_logit_is_an_error_too(backend, wrong):
    """Of plus infinity the softmax makes NaN, whose argmax would be token 0."""
    logits = backend.array(np.float32([[0, 1, wrong]]))

    class Torch(torch.nn.Module):
        def forward(self, idx):
            return logits.expand(*idx.shape, 3)

    class Jax(nnx.Module):
        def __call__(self, idx):
            return jnp.broadcast_to(logits, (*idx.shape, 3))

    model = Torch() if backend is PYTORCH else Jax()
    with pytest.raises(ValueError, match="NaN"):
        backend.scratch.generate_text_simple(model, backend.array([[1, 2], [0, 0]]), 3, 12)


def test_one_compilation_for_any_number_of_tokens():
    cfg = small_config(vocab_size=51)  # a model of its own, for which nothing is compiled yet
    model, prompt = JAX.scratch.GPTModel(cfg, rngs=nnx.Rngs(0)), jnp.array([[1, 2, 3]])
    generate = partial(JAX.scratch.generate_text_simple, model, context_size=12)
    compiled = JAX.scratch.fill_buffer._cache_size
    before = compiled()
    generate(prompt, max_new_tokens=2)
    assert compiled() == before + 1
    generate(prompt, max_new_tokens=40)
    assert compiled() == before + 2  # one for the buffer of this size, not one for each token
    other = prompt + 1  # outside: this sum is compiled too, if no test before asked for one
    again = fresh_compilations(lambda: generate(other, max_new_tokens=40))
    assert again == 0
    generate(prompt[:, :2], max_new_tokens=41)  # another prompt, the same buffer
    assert compiled() == before + 2
