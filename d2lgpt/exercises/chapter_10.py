"""The exercises of chapter 10: training."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import numbers_in_order

EXERCISES = (
    Exercise(
        "10.2",
        "Loss baselines",
        "three numbers with four decimals: uniform, unigram, bigram (of The Time Machine)",
        numbers_in_order(
            [3.332205, 2.828003, 2.276458],
            digits=5,
            wrong={
                (4.807355, 4.079946, 3.284235): "these are bits: a nat is a bit times ln 2",
                (3.295837, 2.828003, 2.276458): (
                    "the vocabulary has 28 tokens: <unk> is one, even if it never occurs"
                ),
                (3.332205, 2.828003, 5.104400): (
                    "that is the entropy of pairs: take off that of the first of the two"
                ),
                (1.447158, 1.228187, 0.988653): "take the natural logarithm, not that to base 10",
            },
        ),
        ("H(next | current) = H(pair) − H(current).",),
    ),
)
