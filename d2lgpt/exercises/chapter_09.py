"""The exercises of chapter 9: a language model."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import numbers_in_order

EXERCISES = (
    Exercise(
        "9.1b",
        "A tied head without blocks: the bound",
        "two numbers in nats: the bound, and what an untied head can come near to",
        numbers_in_order(
            [0.231049, 0],
            digits=3,
            wrong={
                (0.333333, 0): "that is the bound in bits: a nat is a bit times ln 2",
                (0.693147, 0): "one context of three pays ln 2: the mean is over all three",
                (0.231049, 0.231049): (
                    "an untied head has a vector of its own for each token, and no sum to respect"
                ),
            },
        ),
        ("Where three numbers add up to zero, one of them is not positive.",),
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
        ),
        ("SwiGLU has 3 · d · round(8d/3) weights.",),
    ),
)
