"""The exercises of chapter 2: layer normalization."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import number, truth_lists

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
        "2.2",
        "Normalizing over the wrong axis",
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
        ),
        ("x.mean(1, keepdims=True) is the mean over tokens; compare tokens 0, 1 and 2.",),
    ),
)
