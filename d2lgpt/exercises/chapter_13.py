"""The exercises of chapter 13: the key-value cache."""

from collections.abc import Mapping

import numpy as np

from d2lgpt.exercises.backends import Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import WrongForm, counted, kind_of, parts, rights, short, spelled
from d2lgpt.exercises.judges import (
    NOT_YET,
    Judge,
    another_shape,
    array_of,
    compared,
    numbers_in_order,
    returned,
    tried,
)

# ---- 13.1 The size of a cache -------------------------------------------------------------------

MEDIUM, LARGE, XL = (24, 1024, 16), (36, 1280, 20), (48, 1600, 25)  # blocks, width, heads
CONTEXT, VOCAB = 1024, 50_257


def _cache(size: tuple[int, int, int], tokens: int, number_bytes: int) -> int:
    blocks, width, _ = size
    return 2 * blocks * width * number_bytes * tokens


ONE_TOKEN = _cache(MEDIUM, 1, 4)
ONE_TEXT = _cache(LARGE, CONTEXT, 4)
EIGHT_TEXTS = _cache(XL, 8 * CONTEXT, 2)
BYTES = ONE_TOKEN, ONE_TEXT, EIGHT_TEXTS
MODELS = MEDIUM, LARGE, XL


# ---- 13.2 Which bug is it? ----------------------------------------------------------------------

TWICE, MASK, POSITIONS = "twice", "mask", "positions"
BUGS = TWICE, MASK, POSITIONS  # of the caches a, b and c


def _bug(name) -> str:
    """One of the three names, also where more words come with it."""
    if not isinstance(name, str):
        raise WrongForm(f"a list with {kind_of(name)} in it")
    found = {bug for bug in BUGS if spelled(bug).removesuffix("s") in spelled(name)}
    if len(found) != 1:
        raise WrongForm(f"a list with {short(name)} in it")
    return found.pop()


def _names_of_bugs(right: tuple[str, ...], wrong: Mapping[tuple[str, ...], str]) -> Judge:
    def judge(answer) -> str | None:
        if isinstance(answer, str):
            answer = answer.replace(",", " ").split()
        found = parts(answer, ("a", "b", "c"))
        if len(found) != len(right):
            raise WrongForm(counted(len(found), "name"))
        given = tuple(map(_bug, found))
        if given == right:
            return None
        if len(set(given)) < len(given):
            return "each of the three bugs is in one of the caches"
        if given in wrong:
            return wrong[given]
        good = [f"cache {n}" for n, g, r in zip("abc", given, right, strict=True) if g == r]
        return rights(good, len(right)) if good else NOT_YET

    judge.wrong = wrong
    return judge


# ---- 13.3 A sliding window ----------------------------------------------------------------------


def window_mask(positions: np.ndarray, room: int, window: int) -> np.ndarray:
    """Which places each query sees: (B, T) -> (B, T, room)."""
    places, queries = np.arange(room), positions[..., None]
    return (queries - window < places) & (places <= queries)


def _window_mistakes(positions: np.ndarray, room: int, window: int) -> list[tuple]:
    """What people return instead, with the hint."""
    right = window_mask(positions, room, window)
    places, queries = np.arange(room), positions[..., None]
    causal = places <= queries
    rows = np.broadcast_to(np.arange(positions.shape[1]), positions.shape)
    return [
        (~right, "it is the other way round: True is for the keys that a query sees"),
        (causal, "nothing limits how far a query looks back: where does `window` come in?"),
        (
            queries - window < places + 0 * queries,
            "a query sees tokens that come after it: the mask has to be causal too",
        ),
        (
            np.abs(queries - places) < window,
            "the window reaches to both sides: keys after the query must be hidden",
        ),
        (
            window_mask(positions, room, window + 1),
            "a query sees one key too many: its own is one of the `window` keys",
        ),
        (
            window_mask(positions, room, window - 1),
            "a query sees one key too few: `window` keys, its own included",
        ),
        (right & (places < queries), "a query must see its own key, which is one of the `window`"),
        (
            causal & ~right,
            "a query sees what is outside its window: the condition is the other way round",
        ),
        (
            window_mask(rows, room, window),
            "the mask depends on `positions`: a query need not be at the place of its row",
        ),
        (
            np.broadcast_to(right[:1], right.shape),
            "each text has its own positions, and here all get the mask of the first one",
        ),
        (
            np.broadcast_to(places < window, right.shape) & causal,
            "the window moves with the query: the last `window` keys count, not the first",
        ),
    ]


def _trial_window(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    T, room = 5, 12
    starts = np.array([[1], [3], [6]]) + rng.permutation(2)[0]
    cases = [  # a whole prompt, new tokens of three texts, one new token, places out of order
        (np.arange(T)[None], T, 3),
        (starts + np.arange(T), room, int(rng.integers(3, 5))),
        (starts + np.arange(T), room, 1),
        (starts, room, 4),
        (rng.permutation(room)[:6].reshape(2, 3), room, 5),
        (starts + np.arange(T), room, room + 3),
    ]
    for positions, places, window in cases:
        wanted = window_mask(positions, places, window)
        got = answer(backend.array(positions.astype(np.int32)), places, window)
        array = array_of(got, backend)
        if problem := another_shape(array, wanted):
            return problem
        if array.dtype.kind != "b":
            return f"it returns numbers of type {array.dtype}, and should return truth values"
        if (array == wanted).all():
            continue
        for other, hint in _window_mistakes(positions, places, window):
            if (array == other).all():
                return hint
        b, t, s = np.argwhere(array != wanted)[0]
        verb = "sees" if array[b, t, s] else "does not see"
        return (
            f"with window {window}, the query at position {positions[b, t]} {verb} the key at "
            f"place {s}"
        )
    return None


# ---- 13.4 Grouped-query attention ---------------------------------------------------------------

GROUPED_BYTES, GROUPED_FACTOR = 2 * 32 * 8 * 128 * 2, 4


def grouped_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    *,
    group: str = "consecutive",
    scale: float = 0.5,
    mask: str = "causal",
    axis: int = -1,
) -> np.ndarray:
    """The reference; the keywords make known mistakes. `scale`: the power of d that divides."""
    heads, groups, (T, d) = Q.shape[1], K.shape[1], Q.shape[2:]
    h = np.arange(heads)
    index = {
        "consecutive": h // (heads // groups),
        "modulo": h % groups,
        "first": 0 * h,
        "reversed": (h // (heads // groups))[::-1],
        "mean": 0 * h,
    }[group]
    if group == "mean":
        K, V = (A.mean(axis=1, keepdims=True) for A in (K, V))
    K, V = K[:, index], V[:, index]
    scores = Q @ K.swapaxes(-2, -1) / d**scale
    visible = {
        "causal": np.tril(np.ones((T, T), bool)),
        "none": np.ones((T, T), bool),
        "later": np.triu(np.ones((T, T), bool)),
        "earlier": np.tril(np.ones((T, T), bool), -1) | (np.arange(T)[:, None] == 0),
    }[mask]
    weights = np.where(visible, np.exp(scores - scores.max(axis=(-2, -1), keepdims=True)), 0)
    return weights / weights.sum(axis=axis, keepdims=True) @ V


#: In the order in which they are asked about, each with its hint.
_GROUPED_MISTAKES = (
    ({"mask": "none"}, "a query sees tokens that come after it: the mask is missing"),
    ({"mask": "later"}, "the mask is the other way round: hide what comes after the query"),
    ({"mask": "earlier"}, "a query must see its own key: mask what comes after it, and no more"),
    ({"scale": 0.0}, "the scores are not divided by √d"),
    ({"scale": 1.0}, "the scores are divided by d: divide them by its square root"),
    ({"axis": -2}, "the softmax runs over the queries: each query's weights add up to 1"),
    (
        {"group": "modulo"},
        "heads that share a group follow each other: with 6 heads and 2 groups, heads 0, 1 and 2 "
        "have group 0. Here they alternate",
    ),
    ({"group": "reversed"}, "the groups come in reverse order"),
    ({"group": "first"}, "all heads get the keys and values of the first group"),
    ({"group": "mean"}, "the groups are averaged: each has keys and values of its own"),
)


def _trial_grouped(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    def random(*shape: int) -> np.ndarray:  # in eighths, which every precision has
        return rng.integers(-16, 17, size=shape) / 8

    T, d = 5, 4
    for heads, groups in ((6, 2), (2, 2), (6, 3), (4, 1)):
        arrays = [random(2, n, T, d) for n in (heads, groups, groups)]
        wanted = grouped_attention(*arrays)
        got = answer(*(backend.array(array.astype(np.float32)) for array in arrays))
        array, unit = returned(got, backend, finite=False)
        if array.shape == (2, T, heads, d):
            return "heads and tokens have changed places: (B, heads, T, d) is asked for"
        if array.shape == (2, T, heads * d):
            return "the heads are merged already: (B, heads, T, d) is asked for"
        if array.shape == (2, groups, T, d) != wanted.shape:
            return "it returns one result a group: each query head has a result of its own"
        if problem := another_shape(array, wanted):
            return problem
        if not np.isfinite(array).all():
            return f"it returns {array[~np.isfinite(array)][0]} among its numbers: is a row empty?"
        mistakes = [(grouped_attention(*arrays, **slip), h) for slip, h in _GROUPED_MISTAKES]
        problem = compared(array, unit, wanted, mistakes, operations=32)
        if problem is not None:
            plain = "with as many groups as heads it is not plain causal attention either"
            return problem or (
                plain
                if groups == heads
                else f"with {heads} heads and {counted(groups, 'group')} the results are others: "
                "give each head the keys and the values of its group, then attend as ever"
            )
    return None


# ---- 13.5 Padding on the left -------------------------------------------------------------------


def left_padded(lengths: np.ndarray, T: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions (B, T) and visible keys (B, T, T) of prompts that are padded on the left."""
    places, padding = np.arange(T), (T - lengths)[:, None]
    real = places >= padding
    seen = real[:, :, None] & real[:, None, :] & (places <= places[:, None])
    return np.maximum(places - padding, 0), seen | np.eye(T, dtype=bool)


def _other_positions(lengths: np.ndarray, T: int) -> list[tuple[np.ndarray, str]]:
    places, padding = np.arange(T)[None], (T - lengths)[:, None]
    right, _ = left_padded(lengths, T)
    return [
        (places + 0 * padding, "the positions count the padding: 0 is for the first real token"),
        (
            np.where(places < lengths[:, None], places, 0),
            "these are the positions of padding on the right: on the left, it comes first",
        ),
        (places - padding, "at the padding, positions are negative: they are to be 0 there"),
        (right + 1, "the positions begin with 1: the first real token is at 0"),
        (right + (places >= padding), "the first real token is at position 1, and should be at 0"),
        (
            np.where(places < padding, 1, right),
            "at the padding, the positions are 1: they are to be 0 there",
        ),
    ]


def _other_masks(lengths: np.ndarray, T: int) -> list[tuple[np.ndarray, str]]:
    places, padding = np.arange(T), (T - lengths)[:, None]
    real, itself = places >= padding, np.eye(T, dtype=bool)
    causal = np.broadcast_to(places <= places[:, None], (len(lengths), T, T))
    queries, keys = real[:, :, None], real[:, None, :]
    on_the_right = (places < lengths[:, None])[:, None, :]
    _, right = left_padded(lengths, T)
    return [
        (causal, "real tokens see the padding: a causal mask alone does not hide it"),
        (
            causal & keys,
            "a padded query sees nothing, and the softmax of an empty row is no number: let it "
            "see itself",
        ),
        (causal & keys & queries, "a padded query sees nothing: let it see itself"),
        (queries & keys, "the mask is not causal, and a padded query sees nothing"),
        (queries & keys | itself, "real queries see tokens that come after them"),
        (np.broadcast_to(keys, causal.shape), "the mask hides the padding, but not what is later"),
        (keys | itself, "the mask hides the padding, but not what comes after a query"),
        (
            causal & (keys | ~queries),
            "a padded query sees the padding before it: let it see itself alone",
        ),
        (
            queries & keys & causal | ~queries,
            "a padded query sees everything: let it see itself alone",
        ),
        (
            causal & on_the_right,
            "this mask is for padding on the right: on the left, the real tokens come last",
        ),
        (
            causal & on_the_right | itself,
            "this mask is for padding on the right: on the left, the real tokens come last",
        ),
        (right.swapaxes(1, 2), "queries and keys have changed places: (B, queries, keys)"),
        (~right, "it is the other way round: True is for the keys that a query sees"),
        (
            right & ~itself,
            "a token must see itself: real tokens those up to themselves, padding itself alone",
        ),
    ]


def _trial_left_padded(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    T = 7
    first, second = rng.permutation(np.arange(2, T))[:2]
    for lengths in (np.array([first, second, T, 1]), np.array([T, T]), np.array([second])):
        wanted_positions, wanted = left_padded(lengths, T)
        got = answer(backend.array(lengths.astype(np.int32)), T)
        if isinstance(got, Mapping):
            got = [*got.values()]
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            what = f"it returns {kind_of(got)}" if got is not None else "it returns nothing"
            return f"{what}: return a pair, positions and visible keys"
        positions = array_of(got[0], backend)
        if positions.shape == wanted.shape != wanted_positions.shape:
            return "positions come first, then which keys are visible"
        if positions.shape != wanted_positions.shape:
            return f"the positions have shape {positions.shape} where (B, T) is asked for"
        if (positions != wanted_positions).any():
            for other, hint in _other_positions(lengths, T):
                if (positions == other).all():
                    return hint
            return "the positions are others: count the real tokens of each prompt from 0"
        if positions.dtype.kind not in "iu":
            return f"the positions are of type {positions.dtype}: they are whole numbers"
        visible = array_of(got[1], backend)
        if visible.shape != wanted.shape:
            return f"the mask has shape {visible.shape} where (B, T, T) is asked for"
        if visible.dtype.kind != "b":
            return f"the mask has numbers of type {visible.dtype}, and should have truth values"
        if (visible == wanted).all():
            continue
        for other, hint in _other_masks(lengths, T):
            if (visible == other).all():
                return hint
        b, t, s = np.argwhere(visible != wanted)[0]
        verb = "sees" if visible[b, t, s] else "does not see"
        return (
            f"the positions are right; in a prompt of {counted(int(lengths[b]), 'token')}, padded "
            f"to {T}, the query at place {t} {verb} the key at place {s}"
        )
    return None


# ---- The exercises ------------------------------------------------------------------------------

EXERCISES = (
    Exercise(
        "13.1",
        "The size of a cache",
        "three whole numbers of bytes: of one token, of one text, of eight texts",
        numbers_in_order(
            BYTES,
            wrong={
                tuple(n // 2 for n in BYTES): "a cache has keys and values: both have to be kept",
                tuple(n * heads for n, (_, _, heads) in zip(BYTES, MODELS, strict=True)): (
                    "the heads share the width: all of them together have D numbers for a token"
                ),
                tuple(n // heads for n, (_, _, heads) in zip(BYTES, MODELS, strict=True)): (
                    "that is one head of each block: all of them have keys and values"
                ),
                tuple(n // blocks for n, (blocks, _, _) in zip(BYTES, MODELS, strict=True)): (
                    "that is one block: each block has a cache of its own"
                ),
                tuple(n // width * VOCAB for n, (_, width, _) in zip(BYTES, MODELS, strict=True)): (
                    "keys and values are as wide as the model: the vocabulary plays no part"
                ),
                tuple(n / 1e6 for n in BYTES): "these are megabytes: give bytes",
                tuple(n / 2**20 for n in BYTES): "these are mebibytes: give bytes",
                (ONE_TOKEN // 4, ONE_TEXT // 4, EIGHT_TEXTS // 2): (
                    "these are numbers: each takes 4 bytes in float32, and 2 in bfloat16"
                ),
                (ONE_TOKEN, ONE_TEXT, EIGHT_TEXTS // 8): (
                    "the last one is for eight texts, each with a cache of its own"
                ),
                (ONE_TOKEN, ONE_TEXT, 2 * EIGHT_TEXTS): (
                    "the last one is in bfloat16, where a number has 2 bytes"
                ),
                (ONE_TOKEN, ONE_TEXT, EIGHT_TEXTS // 4): (
                    "the last one is for eight texts, and in bfloat16, with 2 bytes a number"
                ),
                (ONE_TOKEN * CONTEXT, ONE_TEXT, EIGHT_TEXTS): "the first one is for one token",
                (ONE_TOKEN, ONE_TEXT // CONTEXT, EIGHT_TEXTS // CONTEXT): (
                    "a text has 1,024 tokens, and the cache keeps all of them"
                ),
            },
            names=("token", "text", "texts"),
        ),
        (
            "A token leaves one key and one value in each block. How many numbers has each?",
            "2 · blocks · D numbers for a token, whatever the number of heads.",
        ),
    ),
    Exercise(
        "13.2",
        "Which bug is it?",
        'a list of the three names "mask", "positions" and "twice", in the order a, b, c',
        _names_of_bugs(
            BUGS,
            wrong={
                (POSITIONS, MASK, TWICE): (
                    "cache b is right. A model with learned positions rotates nothing: which of "
                    "the caches is right for it?"
                ),
                (MASK, TWICE, POSITIONS): (
                    "cache c is right. A mask is used for the prompt too: which cache is wrong "
                    "there?"
                ),
                (TWICE, POSITIONS, MASK): (
                    "cache a is right. A prompt begins at position 0 anyway: can counting from 0 "
                    "spoil it?"
                ),
                (MASK, POSITIONS, TWICE): (
                    "none is right: ask of each bug whether it touches the prompt, and whether "
                    "learned positions feel it"
                ),
                (POSITIONS, TWICE, MASK): (
                    "none is right: ask of each bug whether it touches the prompt, and whether a "
                    "model without rotary positions feels it"
                ),
            },
        ),
        (
            "Two questions tell the three apart. Is the prompt wrong? Is the model with learned "
            "positions wrong?",
            "The prompt is read in one pass that begins at position 0. Which bug is at work "
            "even there?",
        ),
    ),
    Exercise(
        "13.3",
        "A sliding window",
        "the function window_mask(positions, room, window)",
        tried(_trial_window),
        (
            "Start from the cache's own mask, which compares the places of the keys with the "
            "positions of the queries. One more comparison is missing.",
            "The query at position p sees the keys at p - window + 1 to p: `window` of them, "
            "or all that there are at the beginning of a text.",
        ),
    ),
    Exercise(
        "13.4a",
        "Grouped-query attention: the function",
        "the function grouped_attention(Q, K, V)",
        tried(_trial_grouped),
        (
            "Once each head has keys and values of its own, this is causal attention as ever.",
            "Repeat each group for the heads that share it. Which function repeats 0, 1 as 0, 0, "
            "0, 1, 1, 1, and which as 0, 1, 0, 1, 0, 1?",
        ),
    ),
    Exercise(
        "13.4b",
        "Grouped-query attention: the bytes",
        "two whole numbers: bytes for a token, and by what factor that is smaller",
        numbers_in_order(
            [GROUPED_BYTES, GROUPED_FACTOR],
            wrong={
                (GROUPED_BYTES // 2, GROUPED_FACTOR): "keys and values: both are kept",
                (2 * GROUPED_BYTES, GROUPED_FACTOR): "a number has 2 bytes in bfloat16",
                (4 * GROUPED_BYTES, GROUPED_FACTOR): (
                    "that is the cache without groups: now only 8 keys and values are kept"
                ),
                (GROUPED_BYTES, 8): "8 is the number of groups: how many heads share one?",
                (GROUPED_BYTES, 0.25): "the factor is the other way round: larger by smaller",
                (GROUPED_BYTES // 32, GROUPED_FACTOR): "each of the 32 blocks has a cache",
                (GROUPED_BYTES // 4, GROUPED_FACTOR): (
                    "there are 8 groups, with one key and one value each, of width 128"
                ),
            },
            names=("bytes", "factor"),
        ),
        ("What the heads no longer have, the cache need not keep.",),
    ),
    Exercise(
        "13.5",
        "Padding on the left",
        "the function left_padded(lengths, T)",
        tried(_trial_left_padded),
        (
            "Row b begins with T - lengths[b] places of padding. Which places are real?",
            "Three conditions for a real query: it is real itself, the key is real, and the key "
            "is not behind it. What is left to see for a padded query?",
            "A padded query needs one key, so that its softmax is not empty; nobody looks at the "
            "result. The diagonal gives it one.",
        ),
    ),
)
