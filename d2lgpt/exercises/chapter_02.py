"""The exercises of chapter 2: layer normalization."""

import numpy as np

from d2lgpt.exercises.backends import Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import another_shape, compared, number, returned, tried, truth_lists

EPS = 1e-5


def _standardized(x: np.ndarray, axis=1, eps: float = EPS, ddof: int = 0) -> np.ndarray:
    variance = x.var(axis=axis, keepdims=True, ddof=ddof)
    return (x - x.mean(axis=axis, keepdims=True)) / np.sqrt(variance + eps)


def _try_wrong_norm(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    """Whether a function standardizes over axis 1, and if not, what it does instead."""

    def outcome(x: np.ndarray) -> tuple[np.ndarray, float]:
        return returned(answer(backend.array(x.astype(np.float32))), backend)

    # So narrow that eps shows, and exact in every precision: whole numbers over a power of two.
    x = rng.integers(-120, 250, size=(2, 4, 8)) / 2**14
    (got, unit), wanted = outcome(x), _standardized(x)
    if problem := another_shape(got, wanted):
        return problem

    variance = x.var(axis=1, keepdims=True)
    centred = x - x.mean(axis=1, keepdims=True)
    mistakes = [
        (_standardized(x, -1), "it goes along the axis of length D, as LayerNorm does"),
        (_standardized(x, 0), "it goes along the batch: T is the middle axis"),
        (_standardized(x, (1, 2)), "it takes one mean for all features: each has its own"),
        (_standardized(x, ddof=1), "it divides by T - 1: LayerNorm's variance is biased"),
        (_standardized(x, eps=0), "it has lost its eps"),
        (_standardized(x, eps=1e-6), "eps is 1e-6, and is to be 1e-5"),
        (centred / (np.sqrt(variance) + EPS), "eps belongs under the root"),
        (centred / (variance + EPS), "it divides by the variance, and not by its root"),
        (centred, "it subtracts the mean, and divides by nothing"),
        (x / np.sqrt(variance + EPS), "it does not subtract the mean"),
    ]
    hint = compared(got, unit, wanted, mistakes, operations=16)
    if hint is not None:
        return hint or "it is not what comes out along T: see mean, root and eps"
    got, unit = outcome(512 * x)
    if compared(got, unit, _standardized(512 * x), operations=16) is not None:
        return "it is right for small numbers only: nothing but mean and variance counts"
    if np.abs(outcome(0 * x + 1)[0]).max() > 1e-5:
        return "if all tokens are equal, wrong_norm is to return zeros: see eps"
    return None


EXERCISES = (
    Exercise(
        "2.1",
        "Where epsilon begins to matter",
        "one number with three significant digits",
        number(
            0.00182574,
            digits=3,
            wrong={
                0.00316228: "the equation a / root(a² + eps) = 1/2 was solved for 1/root 2",
                0.000577350: "eps is 1e-5 here, not 1e-6",
                3.33333e-6: "that is a²: one root is still to be taken",
                0.00273861: "the value is to be 1/2, so a² / (a² + eps) is 1/4, not 3/7",
            },
        ),
        (
            "The mean of the row is 0, and the mean of the squares is a².",
            "Solve a / root(a² + eps) = 1/2 for a.",
        ),
    ),
    Exercise(
        "2.2a",
        "Normalizing over the wrong axis: the function",
        "the function wrong_norm(x), of either backend",
        tried(_try_wrong_norm),
        (
            "Begin from the two lines of `LayerNorm` that compute mean and variance.",
            "An array of shape (B, T, D) has T as its axis 1.",
        ),
    ),
    Exercise(
        "2.2b",
        "Normalizing over the wrong axis: who notices",
        "two lists of three truth values: wrong_norm's, then LayerNorm's",
        truth_lists(
            [[True] * 3, [False] * 3],
            wrong={
                ((False,) * 3, (True,) * 3): "the two lists have changed places",
                ((True,) * 3, (True,) * 3): (
                    "LayerNorm's statistics come from one token's own features: another token "
                    "cannot change them; make sure that only the last token differs"
                ),
                ((False,) * 3, (False,) * 3): (
                    "wrong_norm's mean over T includes the last token, so all others feel it; did "
                    "you compare the outputs, and not the inputs?"
                ),
            },
            names=("wrong_norm", "LayerNorm"),
        ),
        ("Compare tokens 0, 1 and 2: `(a != b).any` over the features.",),
    ),
)
