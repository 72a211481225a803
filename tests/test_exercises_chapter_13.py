"""Exercises 13.2 to 13.5, tried with right answers of both backends and with people's mistakes."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from d2lgpt.exercises import check
from d2lgpt.exercises.backends import JAX, PYTORCH
from d2lgpt.exercises.broken_caches import differences
from d2lgpt.exercises.chapter_13 import BUGS, grouped_attention, left_padded, window_mask


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


def rejected(id, answer, text):
    verdict = check(id, answer)
    assert not verdict
    assert text in str(verdict)


# ---- 13.2 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", [PYTORCH, pytest.param(JAX, marks=pytest.mark.slow)])
def test_the_table_shows_each_bug(backend):
    """Rounding moves a logit by some 1e-5, and each bug by 0.4 or more."""
    table = differences(backend)
    gaps = [gap for rows in table.values() for pair in rows.values() for gap in pair]
    assert all(gap < 1e-3 or gap > 0.1 for gap in gaps)  # as 0.00 and as a number, on the page
    wrong = {
        name: {kind: tuple(gap > 0.1 for gap in pair) for kind, pair in rows.items()}
        for name, rows in table.items()
    }
    shown = {
        "twice": {"rotary": (False, True), "learned": (False, True)},
        "mask": {"rotary": (True, True), "learned": (True, True)},
        "positions": {"rotary": (False, True), "learned": (False, False)},
    }
    assert wrong == {name: shown[bug] for name, bug in zip("abc", BUGS, strict=True)}


@pytest.mark.parametrize(
    "answer",
    [
        ["Twice", "MASK", "Positions"],
        ("twice", "mask off by one", "rotary positions"),
        {"c": "positions", "a": "twice", "b": "mask"},
        "twice, mask, positions",
        np.array(["twice", "mask", "positions"]),
    ],
)
def test_forms_of_three_names(answer):
    assert check("13.2", answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (["twice", "mask"], "not 2 names"),
        (["twice", "mask", "rope"], "not a list with 'rope' in it"),
        (["twice", "mask", "mask twice"], "not a list with 'mask twice' in it"),
        ([1, 2, 3], "not a list with an int in it"),
        (3, "not an int"),
        (["mask"] * 3, "each of the three bugs"),
    ],
)
def test_other_answers_to_the_table(answer, text):
    rejected("13.2", answer, text)


# ---- 13.3 ---------------------------------------------------------------------------------------


def torch_window(positions, room, window, low=0, high=0):
    gaps = positions[:, :, None] - torch.arange(room)
    return (gaps >= low) & (gaps < window + high)


def jax_window(positions, room, window):
    places = jnp.arange(room)[None, None]
    return (places > positions[..., None] - window) & (places <= positions[..., None])


jitted_window = jax.jit(jax_window, static_argnames=("room", "window"))


@pytest.mark.parametrize("answer", [torch_window, jax_window, jitted_window])
def test_right_windows(answer):
    assert check("13.3", answer)


def changed(**change):
    return lambda p, room, window: torch_window(p, room, window, **change)


def by_rows(positions, room, window):
    rows = torch.arange(positions.shape[1]).expand(positions.shape)
    return torch_window(rows, room, window)


WINDOWS = {
    "plain causal": (lambda p, r, w: torch_window(p, r, 10**6), "where does `window` come in"),
    "not causal": (changed(low=-100), "has to be causal too"),
    "one more": (changed(high=1), "one key too many"),
    "one fewer": (changed(high=-1), "one key too few"),
    "not itself": (changed(low=1), "must see its own key"),
    "both sides": (
        lambda p, r, w: (p[..., None] - torch.arange(r)).abs() < w,
        "reaches to both sides",
    ),
    "hidden": (lambda p, r, w: ~torch_window(p, r, w), "the other way round"),
    "outside": (
        lambda p, r, w: torch_window(p, r, 99) & ~torch_window(p, r, w),
        "outside its window",
    ),
    "rows": (by_rows, "depends on `positions`"),
    "first text": (
        lambda p, r, w: torch_window(p, r, w)[:1].expand(len(p), -1, -1),
        "each text has its own positions",
    ),
    "first keys": (
        lambda p, r, w: torch_window(p, r, 10**6) & (torch.arange(r) < w),
        "moves with the query",
    ),
    "never the last place": (
        lambda p, r, w: torch_window(p, r, w) & (torch.arange(r) < r - 1),
        "does not see the key at place",
    ),
    "numbers": (lambda p, r, w: torch_window(p, r, w).float(), "should return truth values"),
    "for heads": (lambda p, r, w: torch_window(p, r, w)[:, None], "shape (1, 1, 5, 5)"),
    "nothing": (lambda p, r, w: None, "it returns nothing"),
    "a number": (3, "expects the function window_mask"),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_another_window(name):
    for _ in range(3):  # inputs are random, and the hint is the same
        rejected("13.3", *WINDOWS[name])


# ---- 13.4 ---------------------------------------------------------------------------------------


def torch_grouped(Q, K, V):
    share = Q.shape[1] // K.shape[1]
    K, V = (A.repeat_interleave(share, dim=1) for A in (K, V))
    return scaled_dot_product_attention(Q, K, V, is_causal=True)


def torch_fused(Q, K, V):
    return scaled_dot_product_attention(Q, K, V, is_causal=True, enable_gqa=True)


def jax_grouped(Q, K, V):
    Q, K, V = (A.swapaxes(1, 2) for A in (Q, K, V))
    return jax.nn.dot_product_attention(Q, K, V, is_causal=True).swapaxes(1, 2)


def jax_by_hand(Q, K, V):
    """Without a copy of the keys: queries get an axis of groups."""
    B, _, T, d = Q.shape
    grouped = Q.reshape(B, K.shape[1], -1, T, d)
    scores = jnp.einsum("bghtd,bgsd->bghts", grouped, K) / d**0.5
    weights = jax.nn.softmax(jnp.where(jnp.tri(T, dtype=bool), scores, -jnp.inf))
    return jnp.einsum("bghts,bgsd->bghtd", weights, V).reshape(Q.shape)


@pytest.mark.parametrize("answer", [torch_grouped, torch_fused, jax_grouped, jax_by_hand])
def test_right_grouped_attention(answer):
    assert check("13.4a", answer)


def in_numpy(**slip):
    """The reference with a mistake, as a function of PyTorch."""
    return lambda Q, K, V: torch.tensor(
        grouped_attention(Q.double().numpy(), K.double().numpy(), V.double().numpy(), **slip)
    )


def of_groups(Q, K, V):
    return scaled_dot_product_attention(Q[:, : K.shape[1]], K, V, is_causal=True)


GROUPED = {
    "alternating": (in_numpy(group="modulo"), "Here they alternate"),
    "tiled": (
        lambda Q, K, V: torch_grouped(
            Q, *(A.repeat(1, Q.shape[1] // K.shape[1], 1, 1) for A in (K, V))
        ),
        "Here they alternate",
    ),
    "reversed": (in_numpy(group="reversed"), "in reverse order"),
    "first group": (in_numpy(group="first"), "of the first group"),
    "mean": (in_numpy(group="mean"), "the groups are averaged"),
    "no mask": (in_numpy(mask="none"), "the mask is missing"),
    "other mask": (in_numpy(mask="later"), "the mask is the other way round"),
    "not itself": (in_numpy(mask="earlier"), "must see its own key"),
    "no scale": (in_numpy(scale=0.0), "not divided by √d"),
    "by d": (in_numpy(scale=1.0), "by its square root"),
    "queries": (in_numpy(axis=-2), "runs over the queries"),
    "heads last": (lambda Q, K, V: torch_grouped(Q, K, V).transpose(1, 2), "have changed places"),
    "merged": (lambda Q, K, V: torch_grouped(Q, K, V).transpose(1, 2).flatten(2), "merged already"),
    "a group": (of_groups, "one result a group"),
    "ones": (lambda Q, K, V: torch.ones_like(Q), "the results are others"),
    "empty": (lambda Q, K, V: Q * torch.nan, "is a row empty?"),
    "nothing": (lambda Q, K, V: None, "it returns nothing"),
}


@pytest.mark.parametrize("name", GROUPED)
def test_another_grouped_attention(name):
    for _ in range(3):
        rejected("13.4a", *GROUPED[name])


@pytest.mark.parametrize(("heads", "groups"), [(6, 2), (4, 4), (4, 1)])
def test_the_reference_is_what_the_kernels_compute(heads, groups):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, n, 5, 4)).astype(np.float32) for n in (heads, groups, groups)]
    fused = torch_fused(*map(torch.tensor, arrays)).numpy()
    np.testing.assert_allclose(fused, grouped_attention(*arrays), atol=1e-5)


# ---- 13.5 ---------------------------------------------------------------------------------------


def torch_padded(lengths, T):
    places = torch.arange(T)
    real = places >= T - lengths[:, None]
    causal = torch.ones(T, T, dtype=torch.bool).tril()
    visible = real[:, :, None] & real[:, None] & causal | torch.eye(T, dtype=torch.bool)
    return (real.cumsum(1) - 1).clamp(min=0), visible


def jax_padded(lengths, T):
    places = jnp.arange(T)
    positions = places - (T - lengths[:, None])
    seen = (positions[:, None] >= 0) & (places <= places[:, None])
    return jnp.maximum(positions, 0), seen & (positions >= 0)[..., None] | jnp.eye(T, dtype=bool)


@pytest.mark.parametrize(
    "answer",
    [
        torch_padded,
        jax_padded,
        partial(jax.jit, static_argnames="T")(jax_padded),
        lambda lengths, T: dict(
            zip(("positions", "visible"), torch_padded(lengths, T), strict=True)
        ),
    ],
)
def test_right_padding(answer):
    assert check("13.5", answer)


def other_positions(change):
    """`torch_padded` with positions that are made from the right ones and what is real."""

    def answer(lengths, T):
        positions, visible = torch_padded(lengths, T)
        return change(positions, torch.arange(T) >= T - lengths[:, None]), visible

    return answer


def other_mask(make, itself=False):
    """`torch_padded` with a mask of what is real (of queries and of keys) and of what is causal."""

    def answer(lengths, T):
        real = torch.arange(T) >= T - lengths[:, None]
        causal = torch.ones(T, T, dtype=torch.bool).tril()
        mask = make(real[:, :, None], real[:, None], causal).expand(len(lengths), T, T)
        return torch_padded(lengths, T)[0], mask | (torch.eye(T, dtype=torch.bool) & itself)

    return answer


def on_the_right(lengths, T):
    real = torch.arange(T) < lengths[:, None]
    visible = real[:, None] & torch.ones(T, T, dtype=torch.bool).tril()
    return torch.where(real, torch.arange(T), 0), visible


PADDED = {
    "from the padding": (
        other_positions(lambda p, real: torch.arange(real.shape[1]).expand(real.shape)),
        "count the padding",
    ),
    "on the right": (on_the_right, "positions of padding on the right"),
    "mask on the right": (
        lambda lengths, T: (torch_padded(lengths, T)[0], on_the_right(lengths, T)[1]),
        "this mask is for padding on the right",
    ),
    "negative": (
        other_positions(lambda p, real: p - (~real).flip(1).cumsum(1).flip(1)),
        "positions are negative",
    ),
    "from one": (other_positions(lambda p, real: p + real), "should be at 0"),
    "all from one": (other_positions(lambda p, real: p + 1), "begin with 1"),
    "one at the padding": (
        other_positions(lambda p, real: torch.where(real, p, 1)),
        "at the padding, the positions are 1",
    ),
    "random positions": (other_positions(lambda p, real: 2 * p), "the positions are others"),
    "floats": (other_positions(lambda p, real: p.float()), "they are whole numbers"),
    "causal alone": (other_mask(lambda q, k, c: c), "a causal mask alone does not hide it"),
    "empty rows": (other_mask(lambda q, k, c: c & k), "the softmax of an empty row"),
    "only real": (other_mask(lambda q, k, c: c & k & q), "a padded query sees nothing"),
    "not causal": (other_mask(lambda q, k, c: q & k, True), "see tokens that come after them"),
    "keys alone": (other_mask(lambda q, k, c: k.expand(-1, c.shape[0], -1)), "not what is later"),
    "padding sees padding": (
        other_mask(lambda q, k, c: c & (k | ~q)),
        "sees the padding before it",
    ),
    "padding sees all": (other_mask(lambda q, k, c: q & k & c | ~q), "a padded query sees every"),
    "turned": (
        lambda lengths, T: (torch_padded(lengths, T)[0], torch_padded(lengths, T)[1].mT),
        "queries and keys have changed places",
    ),
    "hidden": (
        lambda lengths, T: (torch_padded(lengths, T)[0], ~torch_padded(lengths, T)[1]),
        "the other way round",
    ),
    "strictly": (other_mask(lambda q, k, c: c.tril(-1) & k & q), "a token must see itself"),
    "window": (
        other_mask(lambda q, k, c: c & ~c.tril(-2) & k & q, True),
        "the positions are right; in a prompt of",
    ),
    "numbers": (
        lambda lengths, T: (torch_padded(lengths, T)[0], torch_padded(lengths, T)[1].int()),
        "should have truth values",
    ),
    "for heads": (
        lambda lengths, T: (torch_padded(lengths, T)[0], torch_padded(lengths, T)[1][:, None]),
        "the mask has shape (4, 1, 7, 7)",
    ),
    "other order": (lambda lengths, T: torch_padded(lengths, T)[::-1], "positions come first"),
    "flat": (
        lambda lengths, T: (torch_padded(lengths, T)[0][0], torch_padded(lengths, T)[1]),
        "the positions have shape (7,)",
    ),
    "mask alone": (lambda lengths, T: torch_padded(lengths, T)[1], "return a pair"),
    "nothing": (lambda lengths, T: None, "it returns nothing: return a pair"),
}


@pytest.mark.parametrize("name", PADDED)
def test_another_padding(name):
    for _ in range(3):
        rejected("13.5", *PADDED[name])


def test_references():
    """Examples small enough to be written down."""
    assert window_mask(np.array([[1, 4]]), 6, 3).astype(int).tolist() == [
        [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0]]
    ]
    positions, visible = left_padded(np.array([2]), 3)
    assert positions.tolist() == [[0, 0, 1]]
    assert visible.astype(int).tolist() == [[[1, 0, 0], [0, 1, 0], [0, 1, 1]]]
