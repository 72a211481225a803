"""The exercises of chapter 8: generating text."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import number, numbers_in_order
from d2lgpt.exercises.sizes import TABLE

EXERCISES = (
    Exercise(
        "8.1",
        "The head, only where it is needed",
        "one whole number",
        number(
            33 * TABLE,
            wrong={
                39 * TABLE: "that is the whole work: one position of each step remains to be done",
                24 * TABLE: "the input grows from step to step: 4, 5, 6, 7, 8, 9 tokens",
                42 * TABLE: "the first step sees the prompt of 4 tokens, the last one 9",
                33: "that is positions; each of them costs 768 × 50,257 multiplications",
                39: "that is positions, and of each step one is needed",
            },
        ),
        ("The six steps see 4, 5, 6, 7, 8 and 9 tokens.",),
    ),
    Exercise(
        "8.3",
        "Counting compilations",
        "two whole numbers: with a growing input, with a buffer",
        numbers_in_order(
            [55, 1],
            wrong={
                (100, 1): "once the input has the length of the context, its shape stays the same",
                (54, 1): "count both ends: lengths 10 and 64 are compiled for as well",
                (55, 100): "the buffer has one shape from beginning to end",
                (64, 1): "the prompt has 10 tokens: shorter inputs never occur",
            },
        ),
        ("JAX compiles once for each shape. Which shapes occur?",),
    ),
)
