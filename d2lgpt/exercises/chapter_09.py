"""The exercises of chapter 9: a language model."""

import math
from collections.abc import Mapping

import numpy as np

from d2lgpt.exercises.backends import PYTORCH, Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import ROUNDING, WrongForm, in_order, is_array, kind_of, listed
from d2lgpt.exercises.judges import compared, measured, numbers_in_order, returned, tried

EPS = 1e-6  # of GPT's RMS normalization


def _scales(table: np.ndarray, eps: float = EPS) -> np.ndarray:
    return 1 / np.sqrt((table**2).mean(axis=1) + eps)


def _logits(table: np.ndarray, gain: np.ndarray, eps: float = EPS) -> np.ndarray:
    """What GPT without blocks says: (V, V), a row for the token that is read."""
    return _scales(table, eps)[:, None] * (table * gain) @ table.T


def _try_factors(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    """Whether the two results are what (a) proves of them; other factors than ours may be."""
    V, D = 5, 3
    for size in (1, 2**-10):  # the second so small that eps counts
        # Exact in every precision: whole numbers over a power of two. No row is so small that the
        # mean of its squares is nothing in float16.
        table = size * rng.integers(128 if size < 1 else 0, 256, size=(V, D)) / 128
        table *= rng.choice([-1, 1], size=(V, D))
        gain = rng.permutation([-1, 1, 1]) * rng.integers(64, 256, size=D) / 128  # of both signs
        both = answer(*(backend.array(a.astype(np.float32)) for a in (table, gain)))
        if isinstance(both, Mapping):
            both = in_order(both, ("s", "M"))
        if not isinstance(both, (tuple, list)) or len(both) != 2:
            return "it should return two arrays, s and M"
        (s, unit), (M, other) = (returned(array, backend) for array in both)
        if (s.shape, M.shape) == ((V, V), (V,)):
            return "s and M have changed places: s is the first of the two"
        if s.shape != (V,):
            return f"s has the shape {s.shape}, and should have one number for each token, (V,)"
        if M.shape != (V, V):
            return f"M has the shape {M.shape}, and should have one number for each pair, (V, V)"
        unit = max(unit, other)
        if unit == ROUNDING["float16"] and size < 1:  # its least number is a 17th of this eps
            unit = 2**-5
        if problem := _judge_factors(table, gain, s, M, unit):
            return problem
    return None


def _judge_factors(table, gain, s, M, unit) -> str | None:
    wanted, rows = _logits(table, gain), table.shape[1]
    got = s[:, None] * M

    def same(a, b, mistakes=()) -> str | None:
        return compared(a, unit, b, mistakes)

    centred = table - table.mean(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = M / s[:, None]
    mistakes = [
        (_logits(table, gain, 0), "epsilon is forgotten: it counts where a row is small"),
        (_logits(table, gain, 1e-5), "epsilon is 1e-6 here; 1e-5 is that of layer normalization"),
        (_logits(table, np.ones(rows)), "the gain is forgotten"),
        (_logits(table, gain**2), "the gain occurs once: the head uses the table as it is"),
        (_logits(table, np.abs(gain)), "a gain may be negative, and keeps its sign"),
        (_logits(table, gain) / math.sqrt(rows), "the root is that of the mean, not of the sum"),
        (_scales(table)[:, None] ** 2 * (table * gain) @ table.T, "s lacks a root"),
        (_scales(centred)[:, None] * (centred * gain) @ table.T, "RMS subtracts no mean"),
        ((table * gain) @ table.T, "nothing divides by the root mean square of the row"),
        (
            _logits(table, gain) * _scales(table),
            "the head takes the rows of the table as they are: only row i is normalized",
        ),
    ]
    hint = same(got, wanted, mistakes)
    if hint is None:
        if (s <= 0).any():
            return "the product is right, but s is to be positive: a minus sign can go into M"
        if same(M, M.T) is not None:
            return "the product is right, but M is not symmetric: what depends on i alone is s"
        return None
    if hint:
        return hint
    if np.isfinite(inverse).all() and same(inverse, wanted) is None:
        return "s is upside down: the normalization divides by the root mean square"
    if same(s * M, wanted.T) is None or same(s * M, wanted) is None:
        return "s belongs to the token that is read: it multiplies a row of the logits"
    return "s_i times M_ij is not the logit of token j after token i"


def _judge_table(answer) -> str | None:
    """Whether a table and a gain bring the loss on ijkijk... below 0.24 nats."""
    if isinstance(answer, Mapping):
        answer = in_order(answer, ("table", "gain"))
    if not isinstance(answer, (tuple, list)):
        raise WrongForm(kind_of(answer))
    if len(answer) != 2:
        raise WrongForm(f"{kind_of(answer)} of length {len(answer)}")
    table, gain = (_array(part) for part in answer)
    if table.ndim == 1 and gain.ndim == 2:
        raise WrongForm("the gain before the table")
    if table.ndim != 2 or len(table) != 3 or gain.shape != table.shape[1:]:
        raise WrongForm(f"arrays of the shapes {table.shape} and {gain.shape}")
    if not (np.isfinite(table).all() and np.isfinite(gain).all()):
        raise WrongForm("arrays with NaN or infinity in them")
    loss = _cyclic_loss(_logits(table, gain))
    if loss < 0.24:
        return None
    if _cyclic_loss(_logits(table, gain)[::-1, ::-1]) < 0.24:
        return "this predicts kjikji…: the successor of row 0 is row 1, that of row 2 is row 0"
    if not math.isfinite(loss):
        return "these numbers are so large that the loss is no finite number"
    found = f"the loss is {loss:.3f} nats"
    if (gain >= 0).all():
        return f"{found}: with gains all positive, the token of the largest M_ii prefers itself"
    if loss < 0.4:
        return f"{found}: near. Two contexts must be sure, and the third undecided between two"
    return f"{found}: one context must pay ln 2, and the other two next to nothing"


def _array(part) -> np.ndarray:
    if is_array(part):
        listed(part)  # refuses one that is too large
    try:
        return np.asarray(PYTORCH.numpy(part)).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise WrongForm(f"a pair with {kind_of(part)} in it") from None


def _cyclic_loss(logits: np.ndarray) -> float:
    """The mean loss in nats of three tokens that follow each other in a circle."""
    z = logits - logits.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return float(-log_p[[0, 1, 2], [1, 2, 0]].mean())


EXERCISES = (
    Exercise(
        "9.1a",
        "A tied head without blocks: two factors",
        "the function factors(table, gain), which returns s and M",
        tried(_try_factors),
        (
            "Write z_ij out: normalize row i, multiply by the gain, take the dot product with "
            "row j.",
            "Which factor of z_ij depends on i alone? The rest does not change if i and j swap.",
        ),
    ),
    Exercise(
        "9.1b",
        "A tied head without blocks: the bound",
        "two numbers in nats: the bound, and what an untied head can come near to",
        numbers_in_order(
            [0.231049, 0],
            digits=3,
            wrong={
                (0.333333, 0): "that is the bound in bits: multiply by ln 2 to have nats",
                (0.693147, 0): "one context of three pays ln 2: the mean is over all three",
                (0.231049, 0.231049): (
                    "an untied head has a vector of its own for each token, and no sum to respect"
                ),
            },
        ),
        ("Where three numbers add up to zero, one of them is not positive.",),
    ),
    Exercise(
        "9.1c",
        "A tied head without blocks: the bound is sharp",
        "a pair (table, gain), of shapes (3, D) and (D,)",
        _judge_table,
        (
            "First choose a symmetric M and positive s_i, and only then look for a table: which "
            "M makes two contexts sure of their successor?",
            "In the third context the right successor must lose to another token by a little, "
            "and the token itself must lose by much. A small s_i shrinks all differences of a row.",
            "A coordinate in which two rows are 1 and the third 0 adds its gain to four entries "
            "of M. A coordinate with gain 0 changes nothing but s.",
        ),
    ),
    Exercise(
        "9.1d",
        "A tied head without blocks: trained",
        "one number: the mean of the last 50 of 2,000 training losses, in nats",
        measured(
            1,
            (lambda loss: loss > 0, "a mean of such losses is positive"),
            (lambda loss: loss < 5, "that is too much for a loss: is it a perplexity?"),
            (
                lambda loss: loss < 3.34,
                "a loss above ln 28 = 3.33 would be worse than knowing nothing: is it in bits?",
            ),
            (
                lambda loss: loss < 2.6,
                "the model can do better than this, in either budget: let the optimizer have all "
                "parameters, the gain among them, and take all 2,000 steps at a rate of 1e-2",
            ),
            (
                lambda loss: loss > 2.2,
                "nothing that sees the current character alone gets so far below the bigram "
                "entropy: the model is to have no blocks",
            ),
            (
                lambda loss: loss > 2.37,
                "that is near the bigram entropy, as with a head of its own: here the head is the "
                "token table (and the mean is over 50 losses)",
            ),
        ),
        (
            "`d2l.GPT(28, num_blks=0)`, `d2l.TimeMachine` and `d2l.train_lm` do all of it.",
            "Of which pair of neighbours can the model say 'often' in one order and 'never' in "
            "the other?",
        ),
    ),
    Exercise(
        "9.2",
        "The width of a gated network",
        "three whole numbers: for d = 768, 1024 and 1280",
        numbers_in_order(
            [0, 1024, -1280],
            wrong={
                (0, 0, 0): "round(8d/3) is exactly 8d/3 only where 3 divides d",
                (0, -2048, -1280): "2,730.67 is rounded up, not down",
                (0, 1024, 2560): "3,413.33 is rounded down, not up",
                (-4_718_592 // 3, -2_795_520, -4_369_920): (
                    "SwiGLU has three matrices: two on the way up, one back"
                ),
            },
            names=(768, 1024, 1280),
        ),
        ("SwiGLU has 3 · d · round(8d/3) weights.",),
    ),
)
