"""The exercises of Part II that have one answer, and what people forget on the way to it."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import number_first, numbers_in_order

D, V, T = 768, 50_257, 1024  # width, vocabulary and context of GPT-2 small
BLOCK = 12 * D * D + 13 * D  # four attention matrices' worth, eight of feed-forward, the vectors
GPT2 = V * D + T * D + 12 * BLOCK + 2 * D

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
