"""The exercises of Part I that have one answer, and what people forget on the way to it."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import (
    function,
    number,
    numbers_in_order,
    table,
    truth_lists,
    truths,
)
from d2lgpt.tokenizer import gpt2_tokenizer

D, V, T = 768, 50_257, 1024  # width, vocabulary and context of GPT-2 small
TABLE, POSITIONS = V * D, T * D
ATTENTION, FEED_FORWARD = 4 * D * D + D, 8 * D * D + 5 * D  # of one block, without query biases

SIZES = {  # GPT-2's others: untied, tied
    "medium": (406_212_608, 354_749_440),
    "large": (838_220_800, 773_891_840),
    "xl": (1_637_792_000, 1_557_380_800),
}


def _same_tokens(a: str, b: str) -> set[int]:
    encode = gpt2_tokenizer().encode
    return set(encode(a)) & set(encode(b))


def _pairs_of_texts(rng):
    words = ["time", "day", "every", "Every", "model", "of", "the", "holds", "moves"]
    yield "Every day", "Every day"
    for _ in range(5):
        a, b = (" ".join(rng.choice(words, size=4)) for _ in range(2))
        yield a, b
        yield a, " " + a


def _hint_on_tokens(arguments, got, wanted) -> str:
    if any(isinstance(item, str) for item in got):
        return "it returns pieces of text: the statement asks for token ids"
    if got >= wanted:
        return "some of these ids occur in one of the two texts only: an intersection is asked for"
    return "ids that both texts have are missing: compare sets, whatever the position"


EXERCISES = (
    Exercise(
        "1.1",
        "Counting the outline",
        "a list of four whole numbers: tok_emb, pos_emb, out_head, total",
        numbers_in_order(
            [TABLE, POSITIONS, TABLE, 2 * TABLE + POSITIONS],
            wrong={
                (TABLE, POSITIONS, TABLE + V, 2 * TABLE + V + POSITIONS): (
                    "the output head was given a bias, and it has none"
                ),
                (TABLE, 4 * D, TABLE, 2 * TABLE + 4 * D): (
                    "the position table has a row for every position of the context, not only for "
                    "the four in the input"
                ),
                (TABLE, POSITIONS, TABLE, TABLE + POSITIONS): "the total leaves out the head",
                (V, T, V, 2 * V + T): "these are rows: each row holds emb_dim numbers",
            },
        ),
        (
            "An embedding is a table: one row for each thing that can be looked up.",
            "The head is a matrix from emb_dim to vocab_size. Has it a bias?",
        ),
    ),
    Exercise(
        "1.2",
        "A longer context",
        "two whole numbers: the growth with context_length 2048, and with emb_dim 1536",
        numbers_in_order(
            [POSITIONS, 2 * TABLE + POSITIONS],
            wrong={
                (2 * POSITIONS, 4 * TABLE + 2 * POSITIONS): (
                    "these are the new sizes: the statement asks by how many parameters they grow"
                ),
                (POSITIONS, TABLE + POSITIONS): (
                    "the width occurs in three matrices, and one of them is left out: the head"
                ),
                (POSITIONS, 2 * TABLE): "a wider model has wider position vectors too",
                (0, 2 * TABLE + POSITIONS): (
                    "a longer context costs something even here: each position has a row"
                ),
            },
        ),
        ("Which of the three matrices has context_length as a side? Which have emb_dim?",),
    ),
    Exercise(
        "1.3",
        "What the dummy knows of its past",
        "a list of four truth values, one for each position",
        truths(
            [True, False, False, False],
            wrong={
                (True, True, True, True): (
                    "that is what a real model does: its blocks let each position look at earlier "
                    "ones, but the placeholders hand everything on as it is"
                ),
                (False, False, False, False): (
                    "the first position holds another token, so its own vector is another one"
                ),
                (False, False, False, True): (
                    "each position has its own logits: the last one does not stand for all"
                ),
            },
        ),
        ("Compare the two outputs position by position: (a != b).any over the vocabulary.",),
    ),
    Exercise(
        "1.4",
        "Spaces and capitals",
        "the function same_tokens(a, b)",
        function(_same_tokens, _pairs_of_texts, _hint_on_tokens),
        ("gpt2_tokenizer().encode gives a list; set(...) & set(...) is what two sets share.",),
    ),
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
    Exercise(
        "3.1",
        "Steeper than one",
        "two numbers with four significant digits: x, and the slope there",
        numbers_in_order(
            [1.414214, 1.128904],
            digits=4,
            wrong={
                (
                    1.0,
                    1.083315,
                ): "the slope at 1 is not yet its largest: set its derivative to zero",
                (2.0, 1.085232): "x² = 2 was read as x = 2",
                (1.414214, 0.921350): "the slope is Φ(x) + x·φ(x), and this is Φ(x) alone",
                (-1.414214, -0.128904): "there the slope is smallest, not largest",
            },
        ),
        (
            "By the product rule the slope is Φ(x) + x·φ(x).",
            "Its derivative is φ(x)·(2 − x²).",
        ),
    ),
    Exercise(
        "3.2",
        "A cheaper fit",
        "three numbers: the largest gap (two digits), the |x| there (one decimal), the factor",
        numbers_in_order(
            [0.020335, 2.2704, 43],
            digits=(2, 2, 2),
            wrong={
                (0.020335, 2.2704, 0.0233): "the factor says how much closer: divide the other way",
                (
                    0.020335,
                    2.2704,
                    0.0199,
                ): "the factor is a ratio of the two gaps, not a difference",
                (0.0203, -2.2704, 43): "the statement asks for |x|, which is not negative",
            },
        ),
        ("Take many points, a step of 0.001 or less, and the exact form as the reference.",),
    ),
    Exercise(
        "4.1",
        "Short ways and long ways",
        "two numbers: k, and the share with two decimals",
        numbers_in_order(
            [2, 0.938767],
            digits=(1, 2),
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
        ),
        ("gradient_means returns the first layer first.",),
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
        ),
        ("Only the line that adds x changes; the layers and the seed stay.",),
    ),
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
                ((), ()): "positions 0 and 1 hold other tokens: there the logits must differ",
            },
        ),
        ("Within one block, attention is a weighted mean over the tokens it sees: a set.",),
    ),
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
        ),
        ("Change emb_dim, n_layers and n_heads; an abstract model can be counted for free.",),
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
        ("In which shape of the model does n_heads appear?",),
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
        ),
        (
            "How many parameters fit, at 16 bytes each?",
            "Take off what is there without any block, and divide by the size of a block.",
        ),
    ),
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
