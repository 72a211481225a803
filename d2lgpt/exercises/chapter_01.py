"""The exercises of chapter 1: the outline of GPT-2."""

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.judges import function, numbers_in_order, truths
from d2lgpt.exercises.sizes import POSITIONS, TABLE, D, T, V
from d2lgpt.tokenizer import gpt2_tokenizer


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
            names=("tok_emb", "pos_emb", "out_head", "total"),
        ),
        (
            "An embedding is a table: one row for each thing that can be looked up.",
            "The head is a matrix from `emb_dim` to `vocab_size`. Has it a bias?",
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
            names=("context_length", "emb_dim"),
        ),
        ("Which of the three matrices has `context_length` as a side? Which have `emb_dim`?",),
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
                    "each position has its own logits: compare all four, not only the last"
                ),
            },
            names=range(4),
        ),
        ("Compare the two outputs position by position: `(a != b).any` over the vocabulary.",),
    ),
    Exercise(
        "1.4",
        "Spaces and capitals",
        "the function same_tokens(a, b)",
        function(_same_tokens, _pairs_of_texts, _hint_on_tokens),
        (
            "Token ids are what `encode` of `gpt2_tokenizer()` gives.",
            "Neither place nor number counts, only which ids occur: Python has a type for that.",
        ),
    ),
)
