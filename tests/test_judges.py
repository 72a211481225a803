"""Tolerances of the judges: rounding in any precision is forgiven, the nearest mistake is not."""

import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from test_exercises import ANSWERS
from test_exercises_chapter_05 import three_rates_in_jax, three_rates_in_torch
from test_exercises_chapter_09 import sharp
from test_exercises_chapter_11 import jax_nucleus, torch_nucleus

from d2lgpt.checkpoint import gpt2_file
from d2lgpt.exercises import check, desk, gpt2_reference
from d2lgpt.exercises.chapter_12 import SENTENCE, _diagonals, _exchanged, _turned
from d2lgpt.exercises.judges import compared, off
from d2lgpt.tokenizer import gpt2_tokenizer


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("D2LGPT_GPT2", "stand-in")


TORCH = SimpleNamespace(
    cast=lambda x, dtype: x.to(getattr(torch, dtype)),
    softmax=lambda z: torch.softmax(z, -1),
    sigmoid=torch.sigmoid,
    tanh=torch.tanh,
    array=torch.tensor,
    nucleus=torch_nucleus,
    stack=torch.stack,
)
JAX = SimpleNamespace(
    cast=lambda x, dtype: x.astype(dtype),
    softmax=lambda z: jax.nn.softmax(z, axis=-1),
    sigmoid=jax.nn.sigmoid,
    tanh=jnp.tanh,
    array=jnp.array,
    nucleus=jax_nucleus,
    stack=jnp.stack,
)
both = pytest.mark.parametrize("lib", [TORCH, JAX], ids=["torch", "jax"])
all_precisions = pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
TRIES = range(5)  # inputs are random


def standardized(x, axis=1, eps=1e-5, less=0, of=1):
    mean = x.mean(axis, keepdims=True)
    variance = ((x - mean) ** 2).sum(axis, keepdims=True) / (x.shape[axis] - less)
    return (x - mean) / (variance + eps) ** 0.5


# Each right function as (lib, dtype) makes it: everything after the first line is in that dtype.
def wrong_norm(lib, dtype, **mistake):
    return lambda x: standardized(lib.cast(x, dtype), **mistake)


def quick_gelu(lib, dtype, factor=1.702):
    def answer(x):
        x = lib.cast(x, dtype)
        return x * lib.sigmoid(factor * x)

    return answer


def tanh_gelu(lib, dtype):
    def answer(x):
        x = lib.cast(x, dtype)
        return 0.5 * x * (1 + lib.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    return answer


def factors(lib, dtype, eps=1e-6, of_gain=lambda gain: gain):
    def answer(table, gain):
        table, gain = lib.cast(table, dtype), lib.cast(gain, dtype)
        return ((table**2).mean(1) + eps) ** -0.5, (table * of_gain(gain)) @ table.T

    return answer


def tempered(lib, dtype, power=1.0):
    def answer(logits, temperature):
        z = lib.cast(logits, dtype)
        return lib.softmax((z - z.max()) / temperature**power)

    return answer


def nucleus(lib, dtype, more=0.0):
    return lambda probas, top_p: lib.nucleus(lib.cast(probas, dtype), top_p + more)


def baselines(lib, dtype, unit=math.e):
    def entropy(counts):
        p = counts / counts.sum()
        return -(p * np.log(p)).sum()

    def answer(ids, vocab_size):
        ids = np.asarray(ids)
        pairs = np.unique(ids[:-1] * vocab_size + ids[1:], return_counts=True)[1]
        ones, before = (np.unique(part, return_counts=True)[1] for part in (ids, ids[:-1]))
        three = [math.log(vocab_size), entropy(ones), entropy(pairs) - entropy(before)]
        return lib.cast(lib.array(np.array(three, np.float32) / math.log(unit)), dtype)

    return answer


def recall(lib, dtype, length=20):
    """The recall of 11.1 as a mean of ones and zeros in some precision, with two measurements."""

    def answer(text, training_text):
        windows = [text[i : i + length] for i in range(len(text) - length + 1)]
        if not windows:
            return 0.0
        found = np.array([window in training_text for window in windows], np.float32)
        return lib.cast(lib.array(found), dtype).mean()

    return answer, 0.5, 0.0


def grouped(lib, dtype, power=0.5):
    """Grouped-query attention of 13.4, one text and one head at a time, in some precision."""

    def head(q, k, v):
        hidden = lib.cast(lib.array(np.triu(np.full((len(q), len(q)), -1e4, np.float32), 1)), dtype)
        return lib.softmax(q @ k.T / k.shape[1] ** power + hidden) @ v

    def answer(Q, K, V):
        Q, K, V = (lib.cast(A, dtype) for A in (Q, K, V))
        n = Q.shape[1] // K.shape[1]
        return lib.stack(
            [
                lib.stack([head(q[h], k[h // n], v[h // n]) for h in range(len(q))])
                for q, k, v in zip(Q, K, V, strict=True)
            ]
        )

    return answer


RIGHT = {
    "2.2a": wrong_norm,
    "3.2a": quick_gelu,
    "9.1a": factors,
    "10.2": baselines,
    "11.1a": recall,
    "11.2a": tempered,
    "11.3a": nucleus,
    "13.4a": grouped,
}


@all_precisions
@both
@pytest.mark.parametrize("id", RIGHT)
def test_a_right_function_is_right_in_any_precision(id, lib, dtype):
    for _ in TRIES:
        assert check(id, RIGHT[id](lib, dtype))


MISTAKES = [
    ("2.2a", wrong_norm, {"eps": 1e-6}, "eps is 1e-6"),
    ("2.2a", wrong_norm, {"less": 1}, "divides by T - 1"),
    ("2.2a", wrong_norm, {"axis": 2}, "along the axis of length D"),
    ("3.2a", tanh_gelu, {}, "that is the tanh form"),  # at most 0.02 away
    ("3.2a", quick_gelu, {"factor": 1.0}, "the 1.702 inside σ is missing"),
    ("9.1a", factors, {"eps": 0}, "epsilon is forgotten"),
    ("9.1a", factors, {"eps": 1e-5}, "epsilon is 1e-6 here"),
    ("9.1a", factors, {"of_gain": abs}, "keeps its sign"),
    ("10.2", baselines, {"unit": 2}, "these are bits"),
    ("11.1a", recall, {"length": 19}, "windows of 19 characters"),
    ("11.2a", tempered, {"power": -1.0}, "multiplied by the temperature"),
    ("11.2a", tempered, {"power": 0.0}, "the same probabilities"),
    ("11.3a", nucleus, {"more": -1 / 128}, "top_p"),
    ("13.4a", grouped, {"power": 0.0}, "not divided by √d"),
    ("13.4a", grouped, {"power": 1.0}, "by its square root"),
]


@all_precisions
@both
@pytest.mark.parametrize(("id", "function", "mistake", "hint"), MISTAKES)
def test_a_mistake_is_seen_in_any_precision(id, function, mistake, hint, lib, dtype):
    """Also where it is hardly larger than rounding: it pulls all numbers its own way."""
    for _ in TRIES:
        verdict = check(id, function(lib, dtype, **mistake))
        assert not verdict
        assert hint in str(verdict)


# The smallest mistakes that float32 tells from rounding.
SMALLEST = [
    ("2.2a", wrong_norm(TORCH, "float32", eps=1.01e-5)),
    ("2.2a", wrong_norm(JAX, "float32", eps=0.99e-5)),
    ("3.2a", quick_gelu(TORCH, "float32", 1.7015)),
    ("3.2a", quick_gelu(JAX, "float32", 1.7025)),
    ("9.1a", factors(TORCH, "float32", eps=1.01e-6)),
    ("9.1a", factors(JAX, "float32", eps=0.99e-6)),
    ("11.2a", tempered(TORCH, "float32", power=1.001)),
    ("11.2a", tempered(JAX, "float32", power=0.999)),
    ("11.3a", nucleus(TORCH, "float32", more=-1 / 128)),
    ("11.3a", nucleus(JAX, "float32", more=1 / 128)),
    ("13.4a", grouped(TORCH, "float32", power=0.499)),
    ("13.4a", grouped(JAX, "float32", power=0.501)),
]


@pytest.mark.parametrize(("id", "answer"), SMALLEST, ids=[id for id, _ in SMALLEST])
def test_the_smallest_mistake_is_refused(id, answer):
    for _ in TRIES:
        assert not check(id, answer)


@pytest.mark.parametrize(
    ("id", "answer"),
    [
        ("10.2", lambda i, V: [x + 2e-4 for x in np.asarray(baselines(TORCH, "float32")(i, V))]),
        ("11.1a", (lambda t, b: recall(TORCH, "float32")[0](t, b) * 0.9999, 0.5, 0.0)),
        ("11.1a", (lambda t, b: recall(JAX, "float32")[0](t, b) + 1e-4, 0.5, 0.0)),
    ],
)
def test_a_result_that_is_a_little_off_is_refused(id, answer):
    for _ in TRIES:
        assert not check(id, answer)


# ---- 5.2 ----------------------------------------------------------------------------------------


def in_bfloat16(model, cfg):
    model.to(torch.bfloat16)


def test_a_model_in_half_precision():
    assert check("5.2", three_rates_in_torch(finish=in_bfloat16))
    swapped = three_rates_in_torch(finish=in_bfloat16, emb="attn", attn="emb")
    assert "acts on the attention weights instead of" in str(check("5.2", swapped))

    class InBfloat16(three_rates_in_jax()):
        def __call__(self, ids):
            return super().__call__(ids).astype(jnp.bfloat16)

    assert check("5.2", InBfloat16)


class ExactGELU(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def exact_gelu(model, cfg):
    for block in model.trf_blocks:
        block.ff.layers[1] = ExactGELU()


def test_a_model_with_another_gelu():
    """The two forms of GELU differ by 5e-4 at most, and so a little do the logits."""
    for _ in TRIES:
        answer = three_rates_in_torch(finish=exact_gelu)
        assert "compare each line of `forward`" in str(check("5.2", answer))


# ---- Numbers ------------------------------------------------------------------------------------

DIGITS = {  # of each number that an exercise asks for, and its right value
    "2.1": [(3, 0.0018257)],
    "3.1": [(4, 1.414214), (4, 1.128904)],
    "3.2b": [(2, 0.020335), (2, 2.2704), (2, 42.97)],
    "3.3": [(3, 0.50092), (2, 0.01324)],
    "4.1": [(None, 2), (2, 0.938767)],
    "4.2": [(2, 24_597), (2, 13.033)],
    "4.3": [(2, 0.000201736), (2, 0.00377688), (2, 0.221698), (2, 18.1186)],
    "9.1b": [(3, math.log(2) / 3), (3, 0.0)],
    "10.2": [(5, 3.332205), (5, 2.828003), (5, 2.276458)],
    "12.1b": [(None, 787_200), (None, 4_730_624), (4, 0.316460), (2, 0.00151526)],
    "12.1c": [(None, 163_037_184), (4, 0.312448), (4, 0.310169)],
}


@pytest.mark.parametrize("id", DIGITS)
def test_the_next_number_with_these_digits_is_refused(id):
    """And the right one is accepted rounded, in full, and in float32."""
    rounded = [
        value if digits is None or not value else float(f"{value:.{digits - 1}e}")
        for digits, value in DIGITS[id]
    ]

    def hand_in(numbers):
        return check(id, numbers if len(numbers) > 1 else numbers[0])

    assert hand_in(rounded)
    assert hand_in([value for _, value in DIGITS[id]])
    assert hand_in([np.float32(value) for value in rounded])
    for i, (digits, value) in enumerate(DIGITS[id]):
        exponent = math.floor(math.log10(abs(value))) if value else -1
        step = 1 if digits is None else 10.0 ** (exponent - digits + 1)
        for other in (rounded[i] + step, rounded[i] - step):
            assert not hand_in([*rounded[:i], other, *rounded[i + 1 :]]), other


def test_every_number_with_digits_is_in_that_list():
    """Each right answer of `ANSWERS` in which a number is not whole."""
    lists = {id: a if isinstance(a, (list, tuple)) else [a] for id, a in ANSWERS.items()}
    rounded = {id for id, a in lists.items() if any(isinstance(v, float) for v in a)}
    assert set(DIGITS) == rounded | {"4.2"}  # whose two digits make whole numbers


@pytest.mark.parametrize(
    ("id", "answer", "hint"),
    [
        ("2.1", 0.0018, "right as far as it goes, but with too few digits"),
        ("2.1", 0.00182, "the last digit is cut off rather than rounded"),
        ("4.2", [24_000, 13], "the last digit is cut off rather than rounded"),
        ("3.1", [1.41, 1.13], "right as far as it goes, but with too few digits"),
        ("3.1", [1.414, 1.13], "right as far as it goes, but with too few digits"),
        ("4.2", [1 / 25_000, 1 / 13], "a quotient is upside down: divide the other way"),
        ("4.2", [25_000, 1 / 13], "a quotient is upside down: divide the other way"),
        ("4.2", [0.0000407, 0.0767], "the last layer's is to be divided by the first's"),
        ("6.2", [[1, 2], [1, 2, 3, 4]], "positions count from 0"),
        ("9.1b", [math.log(2) / 3, -0.005], "the first number is right"),
        ("9.1b", [math.log(2) / 3 - 0.005, 0], "the second number is right"),
        ("9.1b", [0.231, 0.001], "the first number is right"),
        ("4.3", [0.0002, 0.0038, 0.22, 19], "the first, second and third numbers are right"),
    ],
)
def test_nearly_right(id, answer, hint):
    verdict = check(id, answer)
    assert not verdict
    assert hint in str(verdict)


def test_rounding_of_numbers():
    assert off(0.00183, 0.00182574, 3) < 1 < off(0.00182, 0.00182574, 3)
    assert off(1e-7, 0, 3) < 1 < off(1e-5, 0, 3)
    assert off(2, 2, None) == 0
    assert off(2.0000001, 2, None) == math.inf


@pytest.mark.parametrize(
    ("id", "numbers"),
    [
        ("2.1", [0.0018257]),
        ("3.1", [1.414214, 1.128904]),
        ("4.3", [0.000201736, 0.00377688, 0.221698, 18.1186]),
        ("9.1b", [0.231049, 0.0]),
        ("10.2", [3.332205, 2.828003, 2.276458]),
        ("11.2b", [0.05, 0.5, 1.6, 3.3322]),
        ("11.1c", [1.41, 400, 0.3]),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@both
def test_numbers_in_half_precision(id, numbers, dtype, lib):
    assert check(id, lib.cast(lib.array(numbers), dtype))
    assert check(id, [lib.cast(lib.array(number), dtype) for number in numbers])


def test_wrong_numbers_in_half_precision():
    bits = torch.tensor([4.807355, 4.079946, 3.284235], dtype=torch.bfloat16)
    assert "these are bits" in str(check("10.2", bits))
    shares = [163_037_184, *torch.tensor([0.310169, 0.310169], dtype=torch.bfloat16)]
    assert "the operations are those of matrix products" in str(check("12.1c", shares))


def test_counts_in_half_precision_are_told_apart():
    """No type of 16 bits can hold them; this is no mistake in counting."""
    counts = jnp.array([4_722_432, 2_360_064], jnp.bfloat16)
    assert "not numbers in half precision, which rounds them" in str(check("5.1", counts))
    assert "all biases are forgotten" in str(check("5.1", [4_718_592, 2_359_296]))
    assert check("5.1", jnp.array([4_722_432, 2_360_064], jnp.float32))


# ---- Measurements -------------------------------------------------------------------------------


def test_what_only_rounding_takes_beyond_a_bound_is_within():
    fresh = [0.9355, 0.9294, 0.9234, 0.9170, 0.8995, 0.8915]
    assert check("11.1a", (recall(TORCH, "float32")[0], np.float32(1) + np.float32(1e-7), 0))
    assert check("11.1b", -0.0)
    assert check("10.3b", (-1e-7, [1e-4, 2e-7, 3e-7, 2e-7, 3e-7, 3e-4], fresh))
    assert not check("10.3b", (-1e-4, [1e-4, 2e-7, 3e-7, 2e-7, 3e-7, 3e-7], fresh))
    assert not check("10.3b", (1e-3, [0.01, 0.01, 0.01, 0.01, 0.02, 0.02], fresh))
    assert not check("11.1b", 1.0001)
    assert not check("11.2b", [0.1, 0.5, 1.5, math.log(28) + 1e-4])


@pytest.mark.parametrize("loss", [0.2399, 0.2401])
def test_the_loss_of_a_table_has_no_tolerance(loss):
    """9.1c: below 0.24 nats is what the statement asks for; t sets how near a table comes."""
    from d2lgpt.exercises.chapter_09 import _cyclic_loss, _logits

    low, high = 1.0, 1000.0
    for _ in range(60):
        t = (low * high) ** 0.5
        low, high = (t, high) if _cyclic_loss(_logits(*sharp(t))) > loss else (low, t)
    assert bool(check("9.1c", sharp(high))) == (loss < 0.24)


def test_perplexities_that_differ_by_the_smallest_mistake():
    ids = gpt2_tokenizer().encode(SENTENCE)
    right = [
        gpt2_reference.perplexity(ids, change, norm)
        for change, norm in ((None, "rms"), (_turned, "layer"), (_exchanged, "layer"))
    ]
    assert check("12.2c", [1.002 * value for value in right])  # as a model in float32 may differ
    assert check("12.2c", torch.tensor(right, dtype=torch.bfloat16))
    for i in range(3):
        for factor in (0.98, 1.02):
            assert not check("12.2c", [v * (factor if j == i else 1) for j, v in enumerate(right)])


def test_spreads_and_shares_that_differ_by_the_smallest_mistake():
    table = gpt2_reference.positions()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    cosines, half = unit @ unit.T, len(table) // 2
    right = _diagonals(cosines, 1, half)
    assert check("12.3b", [float(f"{value:.3g}") for value in right])
    assert check(
        "12.3b", _diagonals((unit.astype(np.float32) @ unit.T.astype(np.float32)), 1, half)
    )
    centred = table - table.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    mean_row = _diagonals(centred @ centred.T, 1, half)  # 0.1% and 2.7% away
    assert "the mean row was subtracted" in str(check("12.3b", mean_row))
    assert not check("12.3b", _diagonals(cosines, 1, half + 1))  # 0.1% and 1.3% away
    ends = [right, _diagonals(cosines, 1, half, (1, 1))]  # both standard deviations are right
    rounded = [[float(f"{value:.3g}") for value in end] for end in ends]
    for i, step in enumerate((0.001, 0.0001)):
        for end, other in ((rounded[0], -step), (rounded[1], step)):
            assert check("12.3b", end)
            assert not check("12.3b", [v + other * (j == i) for j, v in enumerate(end)])

    sizes = np.linalg.svd(table - table.mean(axis=0), compute_uv=False)
    share = float((sizes[:3] ** 2).sum() / (sizes**2).sum())
    assert check("12.3c", np.float32(share))
    assert check("12.3c", jnp.array(share, jnp.bfloat16))
    assert not check("12.3c", round(share, 3) + 0.001)
    assert not check("12.3c", round(share, 3) - 0.001)
    plain = np.linalg.svd(table, compute_uv=False)
    uncentred = float((plain[:3] ** 2).sum() / (plain**2).sum())  # 0.0003 away
    assert "subtract the mean row first" in str(check("12.3c", uncentred))
    assert gpt2_file().kind == "stand-in"


def test_compared():
    wanted = np.linspace(-1, 1, 101)
    other = (wanted + 0.01 * wanted**2, "the square")
    assert compared(wanted + 5e-6, 2**-24, wanted, [other]) is None
    assert compared(wanted + 2e-5, 2**-24, wanted, [other]) == ""
    assert compared(other[0], 2**-24, wanted, [other]) == "the square"
    assert compared(other[0], 2**-8, wanted, [other]) == "the square"
    assert compared(wanted + 0.001, 2**-8, wanted, [other]) is None


def test_every_judge_of_numbers_is_tried_here():
    """Exercises that are judged with a tolerance, but for those that are measured within bands."""
    measured = {id for id, one in desk.exercises().items() if hasattr(one.judge, "rules")}
    tried = {*DIGITS, *RIGHT, "5.2", "9.1c", "12.2c", "12.3b", "12.3c", "10.3b"}
    exact = {"1.4", "8.2", "10.1a", "10.1c", "10.3a", "12.2b", "12.3a", "13.3", "13.5"}
    assert set(desk.exercises()) == measured | tried | exact | set(ANSWERS)
