"""The exercises of chapter 7: the parameter census."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import numbers_in_order, table
from d2lgpt.exercises.sizes import ATTENTION

SIZES = {  # GPT-2's others: untied, tied
    "medium": (406_212_608, 354_749_440),
    "large": (838_220_800, 773_891_840),
    "xl": (1_637_792_000, 1_557_380_800),
}

EXERCISES = (
    Exercise(
        "7.1",
        "Medium, large and XL",
        "a dictionary {'medium': (untied, tied), 'large': ..., 'xl': ...} of whole numbers",
        table(
            SIZES,
            wrong={
                tuple((row[0], row[0]) for row in SIZES.values()): (
                    "tied, the head's matrix is the token table and counts once"
                ),
                tuple((row[0], 2 * row[1] - row[0]) for row in SIZES.values()): (
                    "one of the two tables of 50,257 rows stays when they are tied"
                ),
                (SIZES["xl"], SIZES["large"], SIZES["medium"]): "the sizes have changed places",
            },
            names=("untied", "tied"),
            others={"small"},
        ),
        ("Change `emb_dim`, `n_layers` and `n_heads`; an abstract model can be counted for free.",),
    ),
    Exercise(
        "7.2",
        "More heads, fewer heads",
        "four whole numbers: growth and head width for 24 heads, then both for 6",
        numbers_in_order(
            [0, 32, 0, 128],
            wrong={
                (0, 64, 0, 64): "the width of a head is emb_dim divided by the number of heads",
                (0, 128, 0, 32): "more heads are narrower heads",
                (ATTENTION, 32, -ATTENTION // 2, 128): (
                    "the heads share the same four matrices: no matrix is added for a head"
                ),
            },
        ),
        ("In which shape of the model does `n_heads` appear?",),
    ),
    Exercise(
        "7.3",
        "The largest model for a given memory",
        "two whole numbers: n_layers untied, n_layers tied",
        numbers_in_order(
            [64, 70],
            wrong={
                (59, 65): "8 GB are 8 · 1,024³ bytes here, not 8 · 10⁹",
                (292, 297): "a parameter takes four numbers in training, 16 bytes and not 4",
                (65, 71): "the largest that fits: round down, not up",
                (75, 75): "the tables and the head take memory too, before the first block",
                (64, 64): "tied, the head costs nothing: more blocks fit",
            },
            names=("untied", "tied"),
        ),
        (
            "How many parameters fit, at 16 bytes each?",
            "Take off what is there without any block, and divide by the size of a block.",
        ),
    ),
)
