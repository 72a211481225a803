"""The key-value cache: the same tokens as without it, in both backends, and what it refuses."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import (
    BACKENDS,
    PYTORCH,
    fresh_compilations,
    judge_of,
    small_config,
    to_numpy,
    twins,
)
from flax import nnx

from d2lgpt.checkpoint import write_random_gpt2
from d2lgpt.jax import cache as jax_cache
from d2lgpt.jax import gpt as jax_gpt
from d2lgpt.parity import copy_weights, max_abs_diff
from d2lgpt.torch import cache as torch_cache
from d2lgpt.torch import gpt as torch_gpt

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
CACHE = {"pytorch": torch_cache, "jax": jax_cache}
MODULES = (torch_gpt, jax_gpt)
GPT2_OPTIONS = {"pos": "learned", "norm": "layer", "act": "gelu", "bias": True}
MODERN, GPT2, SCRATCH = "modern", "GPT-2", "GPTModel"
kinds = pytest.mark.parametrize("kind", [MODERN, GPT2, SCRATCH])
PROMPTS = np.random.default_rng(0).integers(29, size=(3, 7))


@pytest.fixture(scope="module")
def models():
    """Each kind of model in both backends, with the same weights; all see 256 tokens."""
    shape = {"vocab_size": 29, "emb_dim": 16, "n_heads": 4, "n_layers": 2, "context_length": 256}
    found = {
        MODERN: twins("GPT", 29, 16, 4, 2, max_len=256, modules=MODULES),
        GPT2: twins("GPT", 29, 16, 4, 2, max_len=256, modules=MODULES, **GPT2_OPTIONS),
        SCRATCH: twins("GPTModel", small_config(**shape)),
    }
    for one, other in found.values():  # a random shift at the end would favour one token always
        with torch.no_grad():
            for name, parameter in one.named_parameters():
                parameter *= 0 if name in ("norm.bias", "final_norm.shift") else 1
        copy_weights(one, other)
    return {
        (kind, name): model
        for kind, pair in found.items()
        for name, model in zip(CACHE, pair, strict=True)
    }


def random(backend, seed=0):
    """The argument that says where random numbers come from."""
    if backend is PYTORCH:
        return {"generator": torch.Generator().manual_seed(seed)}
    return {"seed": seed}


def cached(backend, model, prompts, count, temperature=0, top_k=None, **options):
    prompts = backend.array(np.array(prompts))
    generate = CACHE[backend.name].generate_cached
    return to_numpy(generate(model, prompts, count, temperature, top_k, **options))


def naive(backend, model, prompts, count, temperature=0, **options):
    prompts = backend.array(np.array(prompts))
    if hasattr(model, "generate"):
        ids = model.generate(prompts, count, temperature, cache=False, **options)
    else:
        ids = backend.scratch.generate_text_simple(model, prompts, count, 256)
    return to_numpy(ids)


@both
@kinds
def test_greedy_ids_are_those_of_the_naive_loop(backend, kind, models):
    model = models[kind, backend.name]
    expected = naive(backend, model, PROMPTS, 200)
    np.testing.assert_array_equal(cached(backend, model, PROMPTS, 200), expected)
    assert len(np.unique(expected[:, 7:])) > 3, "a text of one token would prove little"


@both
@pytest.mark.parametrize("kind", [MODERN, GPT2])
@pytest.mark.parametrize("top_k", [None, 5])
def test_the_same_draws_for_the_same_seed(backend, kind, top_k, models):
    model = models[kind, backend.name]
    texts = [
        generate(backend, model, PROMPTS, 40, 1.0, top_k=top_k, **random(backend, seed)).tolist()
        for generate, seed in ((naive, 0), (cached, 0), (cached, 1))
    ]
    assert texts[0] == texts[1] != texts[2]


@both
@kinds
def test_logits_are_those_of_a_full_pass(backend, kind, models):
    """A prompt, then token after token, for a batch whose texts are at different places."""
    model, cache = models[kind, backend.name], CACHE[backend.name]
    ids = np.random.default_rng(1).integers(29, size=(2, 40))
    full = to_numpy(model(backend.array(ids)))
    start = np.array([[0], [0]])
    twin = cache.with_cache(model, cache.Place(backend.array(start)), room=40)
    assert max_abs_diff(twin(backend.array(ids[:, :9])), full[:, :9]) < 1e-4
    for t in range(9, 40):
        at = np.array([[t], [max(t - 5, 0)]])  # the second text reads some tokens again
        set_start(backend, twin, at)
        new = to_numpy(twin(backend.array(np.take_along_axis(ids, at, 1))))
        expected = full[[0, 1], at[:, 0]][:, None]
        assert max_abs_diff(new, expected) < 1e-4


def set_start(backend, twin, start):
    if backend is PYTORCH:
        twin.place.start = torch.tensor(start)
    else:
        twin.place.start[...] = jnp.array(start)


@both
@kinds
def test_a_chunk_of_tokens_at_a_time(backend, kind, models):
    model, cache = models[kind, backend.name], CACHE[backend.name]
    ids = np.random.default_rng(1).integers(29, size=(1, 30))
    twin = cache.with_cache(model, cache.Place(backend.array(np.array([[0]]))), room=30)
    parts = []
    for begin in (0, 10, 20):
        set_start(backend, twin, np.array([[begin]]))
        parts.append(to_numpy(twin(backend.array(ids[:, begin : begin + 10]))))
    full = to_numpy(model(backend.array(ids)))
    assert max_abs_diff(np.concatenate(parts, axis=1), full) < 1e-4


@both
@kinds
def test_prompts_of_different_lengths(backend, kind, models):
    model, lengths = models[kind, backend.name], [7, 1, 4]
    for padding in (0, 28):
        prompts = PROMPTS.copy()
        prompts[1, 1:] = prompts[2, 4:] = padding
        ids = cached(backend, model, prompts, 30, lengths=backend.array(np.array(lengths)))
        for row, length in enumerate(lengths):
            alone = naive(backend, model, PROMPTS[row : row + 1, :length], 30)[0]
            np.testing.assert_array_equal(ids[row, : length + 30], alone)


@both
@pytest.mark.parametrize("T", [1, 63, 64, 65, 256])
def test_every_length_of_prompt_up_to_the_context(backend, T, models):
    model = models[GPT2, backend.name]
    prompt = np.random.default_rng(T).integers(29, size=(1, T))
    for count in {0, 1, min(3, 256 - T), 256 - T}:
        ids = cached(backend, model, prompt, min(count, 256 - T))
        np.testing.assert_array_equal(ids[:, :T], prompt)
        if T in (64, 65):
            np.testing.assert_array_equal(ids, naive(backend, model, prompt, count))


@both
def test_what_does_not_fit_is_refused_or_slides(backend, models):
    model = models[MODERN, backend.name]
    prompt = np.random.default_rng(0).integers(29, size=(1, 250))
    with pytest.raises(ValueError, match=r"257 together, but the model sees 256.*cache=False"):
        cached(backend, model, prompt, 7)
    array = backend.array(prompt)
    with pytest.raises(ValueError, match="257 together"):
        model.generate(array, 7, 0, cache=True)
    by_default = to_numpy(model.generate(array, 7, 0))
    np.testing.assert_array_equal(by_default, naive(backend, model, prompt, 7))


@both
@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([1, 2], "one for each of 3 prompts, not 2"),
        ([1, 2, 0], "length of a prompt must be a whole number of at least 1, not 0"),
        ([1, 2, 8], "8 tokens"),
        ([1, 2, 1.5], "1.5"),
    ],
)
def test_lengths_that_are_none(backend, lengths, message, models):
    with pytest.raises(ValueError, match=message):
        cached(backend, models[MODERN, backend.name], PROMPTS, 2, lengths=lengths)


@both
def test_the_errors_of_generate(backend, models):
    model = models[MODERN, backend.name]
    for prompts, count, options, message in [
        (np.zeros((1, 0), int), 2, (), "empty"),
        ([[29]], 2, (), "token id 29"),
        ([[1]], -1, (), "num_tokens"),
        ([[1]], 2, (-1,), "temperature"),
        ([[1]], 2, (1, 0), "top_k"),
    ]:
        with pytest.raises(ValueError, match=message):
            cached(backend, model, prompts, count, *options)


@both
def test_broken_logits_are_an_error_and_no_token(backend):
    pair = dict(zip(CACHE, twins("GPT", 29, 16, 4, 1, modules=MODULES), strict=True))
    model = pair[backend.name]
    if backend is PYTORCH:
        with torch.no_grad():
            model.token_emb.weight[3] = torch.nan
    else:
        model.token_emb.embedding[...] = model.token_emb.embedding[...].at[3].set(jnp.nan)
    with pytest.raises(ValueError, match="the logits hold NaN"):
        cached(backend, model, [[1]], 2)


@both
def test_the_model_is_left_as_it_was(backend, models):
    model = models[MODERN, backend.name]
    model.train()
    before = str(model), to_numpy(model(backend.array(PROMPTS)))
    cached(backend, model, PROMPTS, 5)
    assert str(model) == before[0]
    np.testing.assert_array_equal(to_numpy(model(backend.array(PROMPTS))), before[1])
    assert model.blks[0].dropout.training if backend is PYTORCH else True
    model.eval()


@both
@pytest.mark.parametrize("kind", [MODERN, SCRATCH])
def test_half_precision(backend, kind, models):
    """The cache has the model's dtype, and the text is the naive one's but for near ties."""
    model = models[kind, backend.name]
    if backend is PYTORCH:
        model = copy.deepcopy(model).bfloat16()
    else:
        graphdef, state = nnx.split(model)
        half = jax.tree.map(
            lambda x: x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x, state
        )
        model = nnx.merge(graphdef, half)
        for _, layer in nnx.iter_graph(model):
            if isinstance(layer, nnx.Embed):
                layer.dtype = jnp.bfloat16  # else it gives float32
    cache = CACHE[backend.name]
    twin = cache.with_cache(model, cache.Place(backend.array(np.zeros((3, 1), int))), room=7)
    logits = to_numpy_wide(twin(backend.array(PROMPTS)))
    block = cache.blocks(twin)[0]
    attention = block.attention if kind == MODERN else block.att
    assert str(attention.keys.dtype).endswith("bfloat16")
    full = to_numpy_wide(model(backend.array(PROMPTS)))
    assert np.abs(logits - full).max() <= 2**-5 * np.abs(full).max()  # a few bfloat16 roundings
    assert cached(backend, model, PROMPTS, 20).shape == (3, 27)


def to_numpy_wide(array):
    return array.detach().float().numpy() if isinstance(array, torch.Tensor) else np.float32(array)


@both
def test_memory_is_what_the_formula_says(backend, models):
    """2 (keys and values) x blocks x D x bytes for each token that there is room for."""
    cache, model = CACHE[backend.name], models[MODERN, backend.name]
    twin = cache.with_cache(model, cache.Place(backend.array(np.zeros((3, 1), int))), room=50)
    twin(backend.array(PROMPTS))
    blocks = cache.blocks(twin)
    arrays = [a for block in blocks for a in (block.attention.keys, block.attention.values)]
    numbers = sum(int(np.prod(a.shape)) for a in arrays)
    assert numbers * 4 == 3 * 50 * (2 * 2 * 16 * 4)


@pytest.mark.parametrize("kind", [MODERN, SCRATCH])
def test_jax_compiles_once(kind, models):
    model = models[kind, "jax"]
    before = jax_cache.fill_with_cache._cache_size()

    def run(T, count, seed, temperature):
        prompt = jnp.array(PROMPTS[:1, :T])
        jax_cache.generate_cached(model, prompt, count, temperature, seed=seed)

    run(3, 10, 0, 0.0)
    for T, count, seed, temperature in [(7, 10, 0, 0.0), (1, 50, 1, 1.0), (3, 61, 2, 0.5)]:
        run(T, count, seed, temperature)
    assert jax_cache.fill_with_cache._cache_size() == before + 1
    assert fresh_compilations(lambda: run(3, 10, 5, 0.9)) == 0


# --- which models ----------------------------------------------------------------------------


def subclass(backend, **changes):
    """A GPT whose attention class has these attributes."""
    module = torch_gpt if backend is PYTORCH else jax_gpt
    attention = type("CausalAttention", (module.GPT.CausalAttention,), changes)
    kind = type("Other", (module.GPT,), {"CausalAttention": attention})
    return kind(11, 16, 2, 1, max_len=16, **backend.rngs())


@both
def test_attention_that_cannot_be_cached(backend):
    call = "forward" if backend is PYTORCH else "__call__"
    prompt = backend.array(np.array([[1, 2]]))
    for changes in ({"is_causal": False}, {call: lambda self, X: X}):
        model = subclass(backend, **changes)
        assert not CACHE[backend.name].can_cache(model, 4)
        with pytest.raises(ValueError, match=r"a block has no causal attention.*cache=False"):
            model.generate(prompt, 2, cache=True)
        assert model.generate(prompt, 2).shape == (1, 4)  # without one


@both
def test_a_changed_step_is_cached_too(backend):
    """Attention that may change how queries meet keys keeps its cache."""
    base = (torch_gpt if backend is PYTORCH else jax_gpt).GPT.CausalAttention

    def attend(self, Q, K, V, visible=None):
        return base.attend(self, 2 * Q, K, V, visible)

    model = subclass(backend, attend=attend)
    assert CACHE[backend.name].can_cache(model, 12)
    prompt = [[1, 2]]
    expected = naive(backend, model, prompt, 10)
    np.testing.assert_array_equal(cached(backend, model, prompt, 10), expected)


# --- beside Hugging Face ---------------------------------------------------------------------


@both
def test_the_ids_of_hugging_face(backend, tmp_path):
    cfg = small_config(vocab_size=211, context_length=128, emb_dim=32, n_heads=4, qkv_bias=True)
    path = write_random_gpt2(tmp_path / "gpt2", cfg)
    judge = judge_of(cfg, path)
    module = torch_gpt if backend is PYTORCH else jax_gpt
    make = lambda: module.GPT(  # noqa: E731
        211, 32, 4, 2, max_len=128, **GPT2_OPTIONS, **backend.rngs()
    )
    model = backend.root.load_gpt2(backend.root.abstract_model(make), path)
    prompts = np.random.default_rng(0).integers(211, size=(2, 9))
    expected = judge.generate(
        torch.tensor(prompts),
        attention_mask=torch.ones(2, 9, dtype=torch.long),
        max_new_tokens=100,
        min_new_tokens=100,
        do_sample=False,
        use_cache=True,
        pad_token_id=0,
    ).numpy()
    np.testing.assert_array_equal(cached(backend, model, prompts, 100), expected)
