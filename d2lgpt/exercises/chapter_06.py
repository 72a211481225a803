"""The exercises of chapter 6: the GPT model."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import truth_lists, truths

EXERCISES = (
    Exercise(
        "6.1",
        "Does the order of the blocks matter?",
        "a list of three truth values: parameters, logits, logits with a placeholder",
        truths(
            [False, True, False],
            wrong={
                (False, True, True): (
                    "a placeholder hands everything on as it is: before or after it, the other "
                    "block sees the same input"
                ),
                (False, False, False): (
                    "the two blocks hold other weights, and what the second does depends on what "
                    "the first has done"
                ),
                (True, True, False): "exchanging blocks adds and removes none",
            },
            names=("parameters", "logits", "placeholder"),
        ),
        ("Compare the logits before and after: is the largest difference rounding, or not?",),
    ),
    Exercise(
        "6.2",
        "A model without positions",
        "two lists of positions: for one block, then for two",
        truth_lists(
            [[0, 1], [0, 1, 2, 3]],
            kind="positions",
            wrong={
                ((0, 1), (0, 1)): (
                    "with two blocks the difference spreads: what positions 0 and 1 hand to the "
                    "second block is no longer the same set"
                ),
                ((0, 1, 2, 3), (0, 1, 2, 3)): (
                    "with one block, positions 2 and 3 see the same set of tokens in both "
                    "sequences; are all entries of pos_emb zero, and is dropout off?"
                ),
                ((1, 2), (1, 2, 3, 4)): "positions count from 0",
                ((), ()): "positions 0 and 1 hold other tokens: there the logits must differ",
            },
            names=(1, 2),
        ),
        ("Within one block, attention is a weighted mean over the tokens it sees: a set.",),
    ),
)
