"""The exercises of chapter 12: loading GPT-2."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import number_first, numbers_in_order
from d2lgpt.exercises.sizes import BLOCK, GPT2, D, T, V

EXERCISES = (
    Exercise(
        "12.1a",
        "Parameter census: a block, and GPT-2",
        "the parameters of one block of GPT-2 (or these and those of the whole model)",
        number_first(
            [BLOCK, GPT2],
            wrong={
                BLOCK - 9 * D - 4 * D: "biases, gains and shifts are forgotten",
                BLOCK - 9 * D: "the biases of the linear layers are forgotten",
                BLOCK - 4 * D: "the two norms are forgotten, each with a gain and a shift",
                BLOCK - 2 * D: "each of the two norms has a shift besides its gain",
                BLOCK - 3 * D: "query, key and value have biases in GPT-2",
                BLOCK - D * D - D: "one matrix of attention is forgotten: there are four",
                BLOCK - 5 * D: "the feed-forward part has biases too, 4 · 768 and 768",
                12 * BLOCK: "that is all twelve blocks: give one",
            },
        ),
        (
            "Attention: four matrices of 768 × 768, each with a bias.",
            "Feed-forward: 768 → 3,072 → 768, both with biases. And two norms.",
        ),
    ),
    Exercise(
        "12.1b",
        "Parameter census: the small model, and what the tables hold",
        "two whole numbers and two fractions with four decimals",
        numbers_in_order(
            [787_200, 4_730_624, (V + T) * D / GPT2, 28 * 256 / 4_730_624],
            digits=(None, None, 4, 2),
            wrong={
                (787_200, 4_730_624, V * D / GPT2, 28 * 256 / 4_730_624): (
                    "GPT-2 has two tables, one for tokens and one for positions"
                ),
                (787_200, 4_723_456, 0.3165, 0.0015): (
                    "the small model's total leaves out its token table"
                ),
                (
                    786_688,
                    4_727_296,
                    0.3165,
                    0.0015,
                ): "each block has two norms, with 256 gains each",
                (786_432, 4_730_624, 0.3165, 0.0015): (
                    "SwiGLU is round(8 · 256 / 3) = 683 wide, and the block has two norms"
                ),
            },
        ),
        ("The small model has no position table: rotary positions have no parameters.",),
    ),
    Exercise(
        "12.1c",
        "Parameter census: an untied head",
        "one whole number and two fractions with four decimals",
        numbers_in_order(
            [GPT2 + V * D, V * D / (12 * 12 * D * D + V * D), V * D / GPT2],
            digits=(None, 4, 4),
            wrong={
                (GPT2, 0.312448, 0.310169): "untied, the head's matrix comes on top",
                (GPT2 + V * D, 0.310169, 0.310169): (
                    "the operations are those of matrix products: norms, biases and looking up a "
                    "row of a table count for nothing there"
                ),
                (GPT2 + V * D, 0.312448, 0.473482): (
                    "the shared table's fraction is of GPT-2 as it is, with one table"
                ),
                (GPT2 + V * D + V, 0.312448, 0.310169): "the head has no bias",
            },
        ),
        ("A matrix costs two operations a token for each of its weights, in blocks and head.",),
    ),
    Exercise(
        "12.2a",
        "Checkpoint mismatches: what is never read",
        "two whole numbers: how many tensors, and how many numbers they hold",
        numbers_in_order(
            [12, 12 * T * T],
            wrong={
                (1, T * T): "each block brings its own",
                (12, 12 * T): "a mask has a row and a column for each position",
                (12, 12 * 12 * T * T): "a mask is (1, 1, 1024, 1024): all heads share it",
                (13, 12 * T * T + V * D): "the token table is read; there is no head in the file",
            },
        ),
        ("A causal mask can be made from the length of the input.",),
    ),
)
