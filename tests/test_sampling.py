"""Sampling: the probabilities, the traps, and draws that follow them, in both backends."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, fresh_compilations, randomize, to_numpy
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from d2lgpt.jax import gpt as jax_gpt
from d2lgpt.jax import sampling as jax_sampling
from d2lgpt.parity import copy_weights, max_abs_diff
from d2lgpt.text import print_wrapped
from d2lgpt.torch import gpt as torch_gpt
from d2lgpt.torch import sampling as torch_sampling

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
SAMPLING = {"pytorch": torch_sampling, "jax": jax_sampling}
GPT = {"pytorch": torch_gpt.GPT, "jax": jax_gpt.GPT}
INF, NAN = float("inf"), float("nan")


def probabilities(backend, logits, *args):
    logits = backend.array(np.array(logits, dtype="float32"))
    return to_numpy(SAMPLING[backend.name].token_probabilities(logits, *args))


# --- from logits to probabilities ------------------------------------------------------------


@both
@pytest.mark.parametrize(
    ("logits", "options", "expected"),
    [
        ([2, 1, 0], (0.5,), [0.8668, 0.1173, 0.0159]),
        ([2, 1, 0], (2,), [0.5065, 0.3072, 0.1863]),
        ([-1, -2, -3, -4], (1, 2), [0.7311, 0.2689, 0, 0]),
        ([-4, -1, -3, -2], (1, 2), [0, 0.7311, 0, 0.2689]),
        ([2, 1, 0], (1, 3), [0.6652, 0.2447, 0.0900]),  # as many as there are
        ([2, 1, 0], (1, 4), [0.6652, 0.2447, 0.0900]),  # more than there are
        ([2, 1, 0], (1, 10**12), [0.6652, 0.2447, 0.0900]),
        ([2, 1, 0], (np.float64(2), np.int64(2)), [0.6225, 0.3775, 0]),
        ([0, 3, 1], (0,), [0, 1, 0]),
        ([0, 3, 1], (0.0, 2), [0, 1, 0]),
        ([0, 3, 3], (0,), [0, 1, 0]),  # of equal ones the first
        ([0, 1, 1, 1], (1, 2), [0, 0.5, 0.5, 0]),
        ([0, 3, 1], (1e-40,), [0, 1, 0]),  # too small for float32
        ([0, 3, 1], (1e-300,), [0, 1, 0]),
        ([0, 3, 1], (1e-29,), [0, 1, 0]),
        ([0, 3, 1], (INF,), [1 / 3, 1 / 3, 1 / 3]),
        ([0, 3, 1], (INF, 2), [0, 0.5, 0.5]),  # the largest ones, also then
        ([-1e38, 1e38, 0], (1e-3,), [0, 1, 0]),  # the quotient would not fit into float32
        ([-INF, 1, 0], (1,), [0, 0.7311, 0.2689]),  # a token that is ruled out
    ],
)
def test_values(backend, logits, options, expected):
    got = probabilities(backend, logits, *options)
    np.testing.assert_allclose(got, expected, atol=5e-5)
    again = probabilities(backend, [[logits]], *options)[0, 0]
    np.testing.assert_allclose(again, got, rtol=0, atol=1e-5)  # another shape, another order
    assert got.dtype == "float32"


def by_definition(logits, temperature, top_k):
    """softmax(logits / temperature) of the largest, row by row, in float64."""
    out = np.zeros(logits.shape)
    V = logits.shape[-1]
    for row, z in zip(out.reshape(-1, V), logits.reshape(-1, V), strict=True):
        kept = sorted(range(len(z)), key=lambda i: (-z[i], i))[:top_k]
        scores = np.exp((z[kept].astype("float64") - z.max()) / temperature)
        row[kept] = scores / scores.sum()
    return out


@settings(max_examples=40)
@given(
    logits=arrays("float32", (2, 3, 7), elements=st.floats(-9, 9, width=16)),
    temperature=st.floats(0.25, 8),
    top_k=st.none() | st.integers(1, 9),
)
def test_both_backends_are_the_definition(logits, temperature, top_k):
    expected = by_definition(logits, temperature, top_k)
    one, other = (probabilities(b, logits, temperature, top_k) for b in BACKENDS)
    # Units in the last place of 1 are 1.2e-7. A score s has an error of s units, which p = exp(-s)
    # makes small; with the exponential, the sum and the division that is less than ten of them.
    np.testing.assert_allclose(one, expected, rtol=0, atol=5e-6)
    np.testing.assert_allclose(other, expected, rtol=0, atol=5e-6)
    for got in (one, other):
        assert ((got > 0).sum(axis=-1) == min(top_k or 7, 7)).all()


@both
@pytest.mark.parametrize("wrong", [NAN, -NAN, INF])
@pytest.mark.parametrize("options", [(1,), (0,), (1, 1), (0.5, 2), (INF,)])
def test_what_is_no_number_shows_in_the_probabilities(backend, wrong, options):
    got = probabilities(backend, [[3, wrong, 1], [3, 2, 1]], *options)
    assert np.isnan(got[0]).any() and not np.isnan(got[1]).any()


IMPOSSIBLE = [
    ((-1,), r"temperature must be a number of at least 0, not -1"),
    ((-1e-9,), "temperature"),
    ((NAN,), "temperature.*nan"),
    ((-INF,), "temperature"),
    ((None,), "temperature.*None"),
    ((True,), "temperature.*True"),
    (("1",), "temperature"),
    ((1, 0), "top_k must be a whole number of at least 1, not 0"),
    ((1, -3), "top_k.*-3"),
    ((1, 2.0), "top_k.*2.0"),
    ((1, True), "top_k.*True"),
]


@both
@pytest.mark.parametrize(("options", "message"), IMPOSSIBLE)
def test_impossible_options_are_named(backend, options, message):
    with pytest.raises(ValueError, match=message):
        probabilities(backend, [1, 2], *options)
    for count in (0, 2):  # also where nothing is drawn
        with pytest.raises(ValueError, match=message):
            model, prefix = small(backend), backend.array(np.array([[1]]))
            model.generate(prefix, count, *options)


def test_the_probabilities_can_be_traced():
    def f(logits, temperature):
        return jax_sampling.token_probabilities(logits, temperature, 2)

    logits = jnp.array([2.0, 1.0, 0.0])
    for temperature in (0.0, 0.7):
        assert max_abs_diff(jax.jit(f)(logits, temperature), f(logits, temperature)) < 5e-6


# --- generate --------------------------------------------------------------------------------


def small(backend, **options):
    shape = {"num_hiddens": 16, "num_heads": 2, "num_blks": 1, "max_len": 8}
    return GPT[backend.name](11, **{**shape, **options}, **backend.rngs())


def twins(**options):
    """A small GPT in both backends with the same weights, in training mode, with dropout."""
    a = randomize(small(PYTORCH, dropout=0.9, **options))
    b = copy_weights(a, small(JAX, dropout=0.9, **options))
    a.train(), b.train()
    return {"pytorch": a, "jax": b}


@pytest.fixture(scope="module")
def pair():
    return twins()


def run(backend, model, prefix, *args, seed=0, **kwargs) -> list[list[int]]:
    """What `generate` returns as lists, from a random stream that begins with `seed`."""
    source = {"generator": torch.Generator().manual_seed(seed), "seed": seed}
    name = "generator" if backend is PYTORCH else "seed"
    prefix = backend.array(np.array(prefix))
    return to_numpy(model.generate(prefix, *args, **kwargs, **{name: source[name]})).tolist()


def greedy_by_hand(model, ids: list[int], count: int) -> list[int]:
    for _ in range(count):
        with torch.no_grad():
            logits = model(torch.tensor([ids[-model.max_len :]]))[0, -1]
        ids = [*ids, int(logits.argmax())]
    return ids


@pytest.mark.parametrize(
    ("length", "count", "pos"), [(3, 4, "rope"), (5, 9, "learned"), (12, 2, "rope")]
)
def test_greedy_is_the_definition_also_beyond_the_context(length, count, pos):
    models = twins(pos=pos)
    prompts = np.random.default_rng(length).integers(11, size=(2, length))
    models["pytorch"].eval()
    expected = [greedy_by_hand(models["pytorch"], row.tolist(), count) for row in prompts]
    models["pytorch"].train()
    for backend in BACKENDS:
        model, ids = models[backend.name], backend.array(prompts)
        out = model.generate(ids, count, temperature=0)
        assert to_numpy(out).tolist() == expected
        if pos == "learned":
            assert run(backend, model, prompts, count, top_k=1, temperature=3) == expected


@both
def test_rows_of_a_batch_are_continued_each_by_itself(backend, pair):
    prompts = [[1, 2, 3], [4, 5, 6], [10, 0, 10]]
    together = run(backend, pair[backend.name], prompts, 6, 0)
    assert together == [run(backend, pair[backend.name], [row], 6, 0)[0] for row in prompts]
    same = run(backend, pair[backend.name], [[1, 2, 3]] * 3, 6)
    assert len(set(map(tuple, same))) > 1, "equal rows get draws of their own"


@both
def test_the_same_seed_gives_the_same_text(backend, pair):
    model, prompt = pair[backend.name], [[1, 2, 3]]
    first = run(backend, model, prompt, 20, seed=1)
    assert run(backend, model, prompt, 20, seed=1) == first
    assert run(backend, model, prompt, 20, seed=2) != first
    assert run(backend, model, prompt, 9, seed=1)[0] == first[0][:12], "a shorter one is its start"


def test_pytorch_draws_from_the_generator_that_is_passed_or_from_the_global_one(pair):
    model, prompt = pair["pytorch"], torch.tensor([[1, 2, 3]])
    before = torch.get_rng_state()
    generator = torch.Generator().manual_seed(5)
    first, second = (model.generate(prompt, 20, generator=generator) for _ in range(2))
    assert not torch.equal(first, second), "the generator has moved on"
    assert torch.equal(torch.get_rng_state(), before), "and the global one has not"
    torch.manual_seed(5)
    third, fourth = (model.generate(prompt, 20) for _ in range(2))
    assert torch.equal(first, third) and torch.equal(second, fourth)


def test_jax_takes_a_number_or_a_key(pair):
    model, prompt = pair["jax"], jnp.array([[1, 2, 3]])
    expected = model.generate(prompt, 20, seed=7).tolist()
    for seed in (np.int64(7), jax.random.key(7), jax.random.PRNGKey(7)):
        assert model.generate(prompt, 20, seed=seed).tolist() == expected
    assert model.generate(prompt, 20).tolist() == model.generate(prompt, 20, seed=0).tolist()


@both
def test_dropout_is_off_and_every_mode_is_as_before(backend, pair):
    model = pair[backend.name]
    model.eval()
    expected = run(backend, model, [[1, 2, 3]], 20)
    model.train()
    model.norm.eval()
    assert run(backend, model, [[1, 2, 3]], 20) == expected
    blk = model.blks[0] if backend is PYTORCH else model.blks.layers[0]
    if backend is PYTORCH:
        assert blk.dropout.training and not model.norm.training
        out = model.generate(torch.tensor([[1]]), 2)
        assert not out.requires_grad and not out.is_inference()
    else:
        assert not blk.dropout.deterministic


@both
@pytest.mark.parametrize(
    ("prefix", "count", "error", "message"),
    [
        (np.zeros((1, 0), dtype=int), 3, ValueError, "empty"),
        (np.zeros((0, 3), dtype=int), 3, ValueError, "empty"),
        (np.array([[1, 11]]), 3, ValueError, "token id 11 is outside the vocabulary"),
        (np.array([[1, -2]]), 0, ValueError, "token id -2"),
        (np.array([1, 2]), 3, ValueError, r"\(batch, tokens\)"),
        (np.array([[1, 2]]), -1, ValueError, "num_tokens must be a whole number.*-1"),
        (np.array([[1, 2]]), 3.0, ValueError, "num_tokens must be a whole number.*3.0"),
        (np.array([[1, 2]], dtype="uint8"), 3, TypeError, "int32 or int64"),
    ],
)
def test_impossible_calls(backend, pair, prefix, count, error, message):
    with pytest.raises(error, match=message):
        pair[backend.name].generate(backend.array(prefix), count)


@both
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_ids_keep_their_dtype_and_zero_tokens_return_the_prefix(backend, pair, dtype):
    ids = backend.array(np.arange(10, dtype=dtype)[None])  # longer than the context
    for count in (0, 3):
        out = pair[backend.name].generate(ids, count)
        assert out.dtype == ids.dtype and out.shape == (1, 10 + count)
        assert max_abs_diff(out[:, :10], ids) == 0


def with_logits(backend, change):
    """A GPT whose logits are changed on the way out."""

    class Torch(torch_gpt.GPT):
        def forward(self, tokens):
            return change(super().forward(tokens))

    class Jax(jax_gpt.GPT):
        def __call__(self, tokens):
            return change(super().__call__(tokens))

    cls = Torch if backend is PYTORCH else Jax
    return cls(3, 4, 2, 0, max_len=8, **backend.rngs())


@both
@pytest.mark.parametrize("wrong", [NAN, INF])
@pytest.mark.parametrize("options", [{}, {"temperature": 0}, {"top_k": 1}])
def test_broken_logits_are_an_error_never_a_token(backend, wrong, options):
    model = with_logits(backend, lambda z: z + backend.array(np.float32([0, wrong, 0])))
    with pytest.raises(ValueError, match="NaN"):
        model.generate(backend.array(np.array([[1], [2]])), 3, **options)


@both
def test_draws_follow_the_probabilities_and_are_independent(backend):
    """Chi-square over pairs of tokens in a row: 8 degrees of freedom, 26.1 once in a thousand."""
    z = np.float32([1, 0, -1])
    model = with_logits(backend, lambda logits: 0 * logits + backend.array(z))
    rows = 4000
    for temperature, top_k, freedom in ((1, None, 26.1), (2, None, 26.1), (0.7, 2, 16.3)):
        out = np.array(run(backend, model, [[0]] * rows, 2, temperature, top_k, seed=3))
        seen = np.zeros((3, 3))
        np.add.at(seen, (out[:, 1], out[:, 2]), 1)
        p = probabilities(backend, z, temperature, top_k).astype("float64")
        expected = rows * np.outer(p, p)
        assert (seen[expected == 0] == 0).all()
        kept = expected > 0
        assert ((seen - expected)[kept] ** 2 / expected[kept]).sum() < freedom


@both
def test_draws_follow_the_model(backend, pair):
    """The third token after two, against the model's own probabilities at the last position."""
    model, rows = pair[backend.name], 4000
    model.eval()
    logits = to_numpy(model(backend.array(np.array([[4, 9]]))))[0, -1]
    model.train()
    out = np.array(run(backend, model, [[4, 9]] * rows, 1, 2.0, 6, seed=11))
    expected = rows * by_definition(logits, 2.0, 6)
    seen = np.bincount(out[:, 2], minlength=11)
    assert (seen[expected == 0] == 0).all()
    kept = expected > 0
    assert ((seen - expected)[kept] ** 2 / expected[kept]).sum() < 20.5  # 5 degrees of freedom


def test_one_compilation_whatever_the_seed_the_temperature_and_the_number_of_tokens():
    # A vocabulary of its own: for this model nothing is compiled yet.
    model = jax_gpt.GPT(13, 16, 2, 1, max_len=8, rngs=nnx.Rngs(0))
    generate = partial(model.generate, cache=False)  # with a cache: test_cache.py
    prompt = jnp.array([[1, 2, 3]])
    compiled = jax_sampling.sample_buffer._cache_size
    before = compiled()
    generate(prompt, 5)
    generate(prompt, 40)
    assert compiled() == before + 2  # one for each length, not one for each token
    others = [(0.7, 3), (0, 4), (1, 5), (np.float32(2), np.int64(6)), (INF, 7)]

    def again():
        for temperature, seed in others:
            generate(prompt, 40, temperature, seed=seed)
        model.train()
        generate(prompt, 40)

    assert fresh_compilations(again) == 0
    generate(prompt[:, :2], 41)  # another prompt, the same buffer
    assert compiled() == before + 2
    generate(prompt, 40, top_k=4)
    assert compiled() == before + 3


def test_the_same_call_in_both_backends():
    one, other = (inspect.signature(cls.generate).parameters for cls in GPT.values())
    source = {"generator": "seed"}  # of random numbers
    assert [source.get(name, name) for name in one] == list(other)
    for name in one.keys() & other.keys():
        assert one[name].default == other[name].default
    first, second = (inspect.getdoc(cls.generate).splitlines()[0] for cls in GPT.values())
    assert first == second


# --- print_wrapped ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "\n"),
        ("one two three", "one two\nthree\n"),
        ("one two\nthree", "one two\nthree\n"),
        ("a\n\nb\n", "a\n\nb\n\n"),
        ("well-kept words", "well-kept\nwords\n"),
        ("abcdefghijklmno p", "abcdefghij\nklmno p\n"),  # a word longer than a line
        ("  a b", "  a b\n"),
    ],
)
def test_wrapped_text(capsys, text, expected):
    print_wrapped(text, width=10)
    assert capsys.readouterr().out == expected


@settings(max_examples=30)
@given(st.text(alphabet="ab \n", max_size=300), st.integers(1, 20))
def test_nothing_but_spaces_is_lost(text, width):
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lines.append)
        print_wrapped(text, width)
    assert all(len(part) <= width for line in lines for part in line.split("\n"))
    assert [line.replace(" ", "").replace("\n", "") for line in lines] == [
        line.replace(" ", "") for line in text.split("\n")
    ]


def test_a_long_text_is_wrapped_in_no_time(capsys):
    print_wrapped("word " * 100_000)
    assert capsys.readouterr().out.count("word") == 100_000


def test_both_namespaces_have_it():
    assert PYTORCH.root.print_wrapped is JAX.root.print_wrapped is print_wrapped
