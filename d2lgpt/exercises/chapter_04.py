"""The exercises of chapter 4: shortcut connections."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import numbers_in_order

EXERCISES = (
    Exercise(
        "4.1",
        "Short ways and long ways",
        "two numbers: k, and the share with two decimals",
        numbers_in_order(
            [2, 0.938767],
            digits=(None, 2),
            wrong={
                (2, 0.830885): "ways through four layers belong to the share too",
                (2, 9.2466): "that is a sum, not yet a share: divide by the whole, 1.1²⁴",
                (0, 0.938767): (
                    "one way leads past all layers, but many lead through two, and together they "
                    "carry more"
                ),
                (12, 0.938767): "12 has the most ways, but each of them is worth only 0.1¹²",
            },
        ),
        (
            "There are C(24, k) ways through k layers, each worth 0.1ᵏ.",
            "All ways together give (1 + 0.1)²⁴.",
        ),
    ),
    Exercise(
        "4.2",
        "Twice as deep",
        "two numbers with two significant digits: without shortcuts, with shortcuts",
        numbers_in_order(
            [24_597, 13.033],
            digits=2,
            wrong={
                (4.06554e-05, 0.0767283): "the last layer's is to be divided by the first's",
                (25.03, 5.98): "that is the network of five layers; here it has ten",
                (25.03, 13.033): "the first network has five layers; both are to have ten",
            },
            names=("without", "with"),
        ),
        ("`gradient_means` returns the first layer first.",),
    ),
    Exercise(
        "4.3",
        "A louder or a quieter shortcut",
        "four numbers with two significant digits: for a = 0, 0.5, 1 and 2",
        numbers_in_order(
            [0.000201736, 0.00377688, 0.221698, 18.1186],
            digits=2,
            wrong={
                (0.221698,) * 4: "all four are those of a = 1: does the forward pass use your a?",
                (0.000201736,) * 4: "all four are those without shortcuts: is use_shortcut True?",
                (0.00504965, 0.0188842, 1.32585, 53.0): "those are of the last layer",
                (0.221698, 0.00377688, 0.000201736, 18.1186): (
                    "a = 0 takes the shortcut away, and a = 1 is the shortcut of the chapter"
                ),
            },
            names=(0, 0.5, 1, 2),
        ),
        ("Only the line that adds x changes; the layers and the seed stay.",),
    ),
)
