"""The exercises of chapter 5: the transformer block."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import numbers_in_order
from d2lgpt.exercises.sizes import ATTENTION, FEED_FORWARD, D

EXERCISES = (
    Exercise(
        "5.1",
        "Where a block keeps its parameters",
        "two whole numbers: the feed-forward part, then the attention part",
        numbers_in_order(
            [FEED_FORWARD, ATTENTION],
            wrong={
                (8 * D * D, 4 * D * D): "all biases are forgotten",
                (FEED_FORWARD, ATTENTION + 3 * D): (
                    "query, key and value have no biases in this configuration (qkv_bias)"
                ),
                (FEED_FORWARD, 4 * D * D): "the output projection of attention has a bias",
                (8 * D * D + 4 * D, ATTENTION): "the second linear layer has a bias too",
                (FEED_FORWARD, 3 * D * D): (
                    "attention has four matrices: what follows the heads is the fourth"
                ),
            },
        ),
        ("The feed-forward part widens fourfold and narrows again, each time with a bias.",),
    ),
)
