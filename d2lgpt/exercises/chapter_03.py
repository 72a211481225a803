"""The exercises of chapter 3: the feed-forward network."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import numbers_in_order

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
            "Its derivative is φ(x)·(2 − x²).",
        ),
    ),
    Exercise(
        "3.2",
        "A cheaper fit",
        "three numbers: the largest gap (two digits), the |x| there (one decimal), the factor",
        numbers_in_order(
            [0.020335, 2.2704, 43],
            digits=(2, 2, 2),
            wrong={
                (0.020335, 2.2704, 0.0233): "the factor says how much closer: divide the other way",
                (
                    0.020335,
                    2.2704,
                    0.0199,
                ): "the factor is a ratio of the two gaps, not a difference",
                (0.0203, -2.2704, 43): "the statement asks for |x|, which is not negative",
            },
        ),
        ("Take many points, a step of 0.001 or less, and the exact form as the reference.",),
    ),
)
