"""The exercises of chapter 3: the feed-forward network."""

import math

import numpy as np

from d2lgpt.exercises.backends import Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import to_numbers
from d2lgpt.exercises.judges import another_shape, compared, numbers_in_order, returned, tried


def _sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def _try_quick_gelu(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    """Whether a function is x·σ(1.702·x), number by number, and if not, what it is instead."""
    x = rng.integers(-255, 256, size=(16, 32)) / 64  # exact in every precision
    wanted = x * _sigmoid(1.702 * x)
    got, unit = returned(answer(backend.array(x.astype(np.float32))), backend)
    if problem := another_shape(got, wanted):
        return problem
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    mistakes = [
        (_sigmoid(1.702 * x), "it is the logistic function alone: x is a factor too"),
        (x * _sigmoid(x), "the 1.702 inside σ is missing"),
        (1.702 * x * _sigmoid(x), "the 1.702 belongs inside σ, not before it"),
        (x * _sigmoid(-1.702 * x), "a sign in the exponent of σ is the other way round"),
        (
            x * np.tanh(1.702 * x),
            "σ is the logistic function, which lies between 0 and 1: not tanh",
        ),
        (x * (1 + np.tanh(inner)) / 2, "that is the tanh form, which part (b) compares with"),
    ]
    hint = compared(got, unit, wanted, mistakes)
    return hint if hint != "" else "it is not x·σ(1.702·x): try it on 0, on 1 and on -1 by hand"


def _shares(answer) -> str | None:
    """The two shares of exercise 3.3; numbers nearby may come from another draw of the input."""
    problem = _shares_of_the_chapter(answer)
    if problem and problem not in _shares_of_the_chapter.wrong.values():
        given = to_numbers(answer)
        if 0.49 < given[0] < 0.51 and 0.011 < given[1] < 0.016:
            return (
                "close, but this comes from another `x`: restart the kernel, run the chapter once "
                "from the top, and then your cell"
            )
    return problem


_shares_of_the_chapter = numbers_in_order(
    [0.50092, 0.01324],
    digits=(3, 2),
    names=("ReLU", "GELU"),
    wrong={
        (0.50092, 0.10645): (
            "the slope of GELU is also negative: its absolute value is to be small, and a slope of "
            "-0.1 is not small"
        ),
        (0.50092, 0.02892): "that is where GELU itself is small: the question is about its slope",
        (0.50092, 0.0): "what reaches GELU comes from the first linear layer, not from GELU",
        (0.48964, 0.00467): (
            "that is for an `x` of numbers between 0 and 1: take the last one of the chapter"
        ),
        (0.49588, 0.01194): "that is for `x` itself: first comes a linear layer, `ff.layers[0]`",
        (0.49908, 0.98676): "these are the shares of the numbers that do pass a gradient on",
    },
)
_shares.wrong = _shares_of_the_chapter.wrong

EXERCISES = (
    Exercise(
        "3.1",
        "Steeper than one",
        "two numbers with four significant digits: x, and the slope there",
        numbers_in_order(
            [1.414214, 1.128904],
            digits=4,
            wrong={
                (
                    1.0,
                    1.083315,
                ): "the slope at 1 is not yet its largest: set its derivative to zero",
                (2.0, 1.085232): "x² = 2 was read as x = 2",
                (1.414214, 0.921350): "the slope is Φ(x) + x·φ(x), and this is Φ(x) alone",
                (-1.414214, -0.128904): "there the slope is smallest, not largest",
            },
        ),
        (
            "By the product rule the slope is Φ(x) + x·φ(x).",
            "Differentiate once more, with φ′ from the statement: where does the sign change?",
        ),
    ),
    Exercise(
        "3.2a",
        "A cheaper fit: the function",
        "the function quick_gelu(x), of either backend",
        tried(_try_quick_gelu),
        ("Both frameworks have the logistic function: `torch.sigmoid`, `jax.nn.sigmoid`.",),
    ),
    Exercise(
        "3.2b",
        "A cheaper fit: how close it comes",
        "three numbers: the largest gap (two digits), the |x| there (one decimal), the factor",
        numbers_in_order(
            [0.020335, 2.2704, 42.97],
            digits=(2, 2, 2),
            wrong={
                (0.020335, 2.2704, 0.02327): (
                    "the factor says how much closer: divide the other way"
                ),
                (0.020335, 2.2704, 0.0199): (
                    "the factor is a ratio of the two gaps, not a difference"
                ),
                (0.020335, -2.2704, 42.97): "the statement asks for |x|, which is not negative",
                (0.020668, 2.2890, 43.7): (
                    "that is the gap to the tanh form: the exact one has to be asked for in JAX"
                ),
            },
        ),
        (
            "Take many points, a step of 0.001 or less, and the exact form as the reference.",
            "The factor: divide this largest gap by that of the tanh form.",
        ),
    ),
    Exercise(
        "3.3",
        "Silent units",
        "two fractions with three decimals: ReLU's share, then GELU's",
        _shares,
        (
            "What reaches GELU is the output of the first of the three layers of `ff`.",
            "`slopes` of this chapter takes arrays of any shape.",
            "A share is a mean of truth values: `(...).float().mean()`, in JAX `(...).mean()`.",
        ),
    ),
)
