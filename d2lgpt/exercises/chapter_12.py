"""The exercises of chapter 12: loading GPT-2."""

import math
import re
from collections.abc import KeysView, Set

import numpy as np

from d2lgpt.checkpoint import GPT_NAMES, STAND_IN, gpt2_file, gpt2_layout, held_out_text
from d2lgpt.config import GPT_CONFIG_124M
from d2lgpt.exercises import gpt2_reference
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import (
    ORDINALS,
    ROUNDING,
    WrongForm,
    counted,
    kind_of,
    parts,
    rounding,
    the_one,
    to_numbers,
    to_positions,
)
from d2lgpt.exercises.judges import measured, number_first, numbers_in_order, off
from d2lgpt.exercises.sizes import BLOCK, GPT2, D, T, V
from d2lgpt.tokenizer import gpt2_tokenizer

SENTENCE = (
    "The Time Machine, by H. G. Wells. The Time Traveller was expounding a recondite matter to us."
)


# ---- 12.2b: what has no counterpart -------------------------------------------------------------


def _without_counterpart() -> tuple[set[str], set[str], set[str]]:
    """Tensors without destination, parameters without source, and masks, with {} for the block."""
    width = round(8 * D / 3)
    gated = {"W_g": (D, width), "W_1": (D, width), "W_2": (width, D)}  # (in, out), as in the file
    model = {}
    for layer, to in GPT_NAMES.items():
        if ".mlp." not in layer and layer != "wpe":  # rotary positions have no table
            model |= {f"{to}.{kind}": None for kind in ("weight", "bias")}
    for name, shape in gated.items():
        model |= {f"blks.{{}}.ffn.{name}.weight": shape, f"blks.{{}}.ffn.{name}.bias": shape[1:]}

    masks, unread, filled = set(), set(), set()
    for name, shape in gpt2_layout({**GPT_CONFIG_124M, "n_layers": 1}).items():
        name = name.replace("h.0.", "h.{}.")
        layer, _, kind = name.rpartition(".")
        if layer not in GPT_NAMES:
            masks.add(name)
            continue
        to = f"{GPT_NAMES[layer]}.{kind}"
        if to in model and model[to] in (None, shape):
            filled.add(to)
        else:
            unread.add(name)
    return (
        unread,
        {f"blks.{{}}.ffn.{n}.{k}" for n in gated for k in ("weight", "bias")} - filled,
        masks,
    )


def _names(part) -> set[str]:
    """Names as people write them, with {} for the number of the block."""
    found = set()
    for name in part if isinstance(part, (Set, KeysView)) else _list_of_names(part):
        if not isinstance(name, str):
            raise WrongForm(f"a list with {kind_of(name)} in it")
        name = re.sub(r"\s+.*", "", name.strip()).replace("/", ".").removeprefix("transformer.")
        name = re.sub(r"^h\.[^.]+\.", "h.{}.", name)
        name = re.sub(r"^(attn|mlp|ln_[12])\.", r"h.{}.\1.", name)
        name = re.sub(r"^blks\.(layers\.)?[^.]+\.", "blks.{}.", name)
        name = re.sub(r"^(attention|ffn|norm[12])\.", r"blks.{}.\1.", name)
        found.add(re.sub(r"\.(kernel|scale|embedding)$", ".weight", name))
    return found


def _list_of_names(part) -> list:
    try:
        return parts(part)
    except WrongForm as form:
        raise WrongForm(f"{form} in the place of a list of names") from None


def _judge_names(answer) -> str | None:
    lists = parts(answer, ("tensors", "parameters"))
    if len(lists) != 2:
        raise WrongForm(f"{kind_of(answer)} of length {len(lists)}")
    tensors, parameters = map(_names, lists)
    unread, unfilled, masks = _without_counterpart()
    if (tensors - masks, parameters) == (unread, unfilled):
        return None
    if (parameters - masks, tensors) == (unread, unfilled):
        return "the two lists have changed places: tensors of the file first"
    every = [*tensors, *parameters]
    if every and not any("." in name for name in every):
        return "give whole names, such as `h.0.ln_1.weight`, with weights and biases one by one"
    if any(name.startswith("blks") for name in tensors):
        return "the first list is of tensors of the file, whose blocks are called `h`"
    if any(name.startswith(("h.", "wpe", "wte", "ln_f")) for name in parameters):
        return "the second list is of parameters of the model, whose blocks are called `blks`"
    if any(name.startswith("pos_emb") for name in parameters):
        return "with rotary positions the model has no position table at all"
    if tensors - masks <= {"wpe.weight"} or not any("mlp" in name for name in tensors):
        return (
            "the names alone do not decide: a tensor has a destination only if its shape fits. How "
            "wide is the gated network, and how wide is GPT-2's?"
        )
    if "h.{}.mlp.c_proj.bias" in tensors or "blks.{}.ffn.W_2.bias" in parameters:
        return "one bias of the feed-forward network is as long as the model is wide, in both"
    if "wpe.weight" not in tensors:
        return "something around the blocks has no destination either: what are rotary positions?"
    if tensors - masks != unread:
        return f"the first list has {_surplus(tensors - masks, unread)}"
    return f"the first list is right; the second has {_surplus(parameters, unfilled)}"


def _surplus(given: set, right: set) -> str:
    """How many names are too many, and how many are missing."""
    more, few = (counted(len(names), "name") for names in (given - right, right - given))
    return f"{more} too many and {few} missing"


# ---- 12.2c: three silent mistakes ---------------------------------------------------------------


def _turned(name: str, value: np.ndarray) -> np.ndarray:
    return value.T if name.endswith("attn.c_proj.weight") else value


def _exchanged(name: str, value: np.ndarray) -> np.ndarray:
    if ".attn.c_attn." not in name:
        return value
    query, key, rest = np.split(value, 3, axis=-1)
    return np.concatenate([key, query, rest], axis=-1)


def _only(part: str, change):
    return lambda name, value: change(name, value) if part in name else value


def _rotated(name: str, value: np.ndarray) -> np.ndarray:
    return np.roll(value, value.shape[-1] // 3, axis=-1) if ".attn.c_attn." in name else value


#: For each of the three: what a reader may have done instead, as (change, norm), and the hint.
_INSTEAD = (
    {
        (None, "no shift"): "the gains should go into the model with `norm='rms'`: this one still "
        "subtracts the mean",
    },
    {
        (
            _only("h.0.", _turned),
            "layer",
        ): "only the first block has its matrix transposed: transpose all of them",
        (lambda n, v: v[::-1] if n.endswith("attn.c_proj.weight") else v, "layer"): (
            "the rows are in reverse order: transpose the matrix, rows into columns"
        ),
    },
    {
        (_only("weight", _exchanged), "layer"): "the thirds of the biases change places too",
        (_only("h.0.", _exchanged), "layer"): "the thirds are exchanged in the first block only",
        (_rotated, "layer"): "the values have moved as well: only query and key change places",
    },
)


def _near(given: float, right: float, unit: float = 0.0) -> bool:
    """Whether a perplexity is the right one: half precision of a model moves it, by up to 1%.

    Of the mistakes below, exchanging the weights without the biases is the nearest: 3.5% away.
    """
    return abs(given - right) <= (0.01 + 2 * unit) * right


def _judge_mistakes(answer) -> str | None:
    given = to_numbers(answer)
    if len(given) != 3:
        raise WrongForm(counted(len(given), "number"))
    ids = gpt2_tokenizer().encode(SENTENCE)
    mistakes = ((None, "rms"), (_turned, "layer"), (_exchanged, "layer"))
    right = [gpt2_reference.perplexity(ids, *mistake) for mistake in mistakes]
    unit = rounding(answer)
    wrong = [i for i in range(3) if not _near(given[i], right[i], unit)]
    if not wrong:
        return None
    if sorted(range(3), key=given.__getitem__) != sorted(range(3), key=right.__getitem__) and all(
        map(_near, sorted(given), sorted(right))
    ):
        return "these are the numbers, but the statement asks for them in another order"
    if all(abs(given[i] - math.log(right[i])) < 0.03 for i in wrong):
        return "these are losses: the perplexity is the exponential of the loss"
    first = wrong[0]
    number = f"the {ORDINALS[first]} number"
    if _near(given[first], gpt2_reference.perplexity(ids)):
        return f"{number} is the perplexity without any mistake: did the model change at all?"
    for (change, norm), hint in _INSTEAD[first].items():
        if _near(given[first], gpt2_reference.perplexity(ids, change, norm)):
            return f"{number}: {hint}"
    page = gpt2_tokenizer().encode(held_out_text())[:129]
    if _near(given[first], gpt2_reference.perplexity(page, *mistakes[first])):
        return "that is the perplexity on the page that was held out: take the sentence"
    return (
        f"{number} is not what the file at hand gives: make one mistake at a time, each in all "
        "blocks and in nothing else, and take the sentence of this chapter"
    )


# ---- 12.3: the position table -------------------------------------------------------------------


def _judge_standing_out(answer) -> str | None:
    given = to_positions(answer)
    table = gpt2_reference.positions()
    norms = np.linalg.norm(table, axis=1)

    def standing_out(middle: float, share: float) -> list[int]:
        return np.flatnonzero(np.abs(norms - middle) > share * middle).tolist()

    right = standing_out(float(np.median(norms)), 0.5)
    if given == right:
        return None
    if any(position != round(position) for position in given):
        return "these are norms: report the positions, as whole numbers"
    if given == [position + 1 for position in right]:
        return "positions count from 0"
    if given == standing_out(float(norms.mean()), 0.5):
        return "compare with the median of the norms: the rows that stand out move the mean"
    if set(given) > set(right):
        more = len(set(given) - set(right))
        return f"{more} of these {'do' if more > 1 else 'does'} not stand out by the rule given"
    if set(given) < set(right):
        return (
            f"some are missing: the rule given finds {len(right)} positions, those with a small "
            "norm included, if there are any"
        )
    return "other positions stand out by the rule given: it is the rows of `wpe.weight` that count"


def _diagonals(
    cosines: np.ndarray, first: int, last: int, ddof: tuple[int, int] = (0, 0)
) -> tuple[float, float]:
    diagonals = [np.diagonal(cosines, distance) for distance in range(first, last + 1)]
    return (
        float(np.mean([one.std(ddof=ddof[0]) for one in diagonals])),
        float(np.std([one.mean() for one in diagonals], ddof=ddof[1])),
    )


def _judge_diagonals(answer) -> str | None:
    given = to_numbers(answer)
    if len(given) != 2:
        raise WrongForm(counted(len(given), "number"))
    table = gpt2_reference.positions()
    unit = table / np.linalg.norm(table, axis=1, keepdims=True)
    centred = table - table.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    count, cosines = len(table), unit @ unit.T

    unit = rounding(answer)

    def agrees(numbers) -> bool:
        return all(off(g, n, 3, unit) <= 1 for g, n in zip(given, numbers, strict=True))

    # `std` divides by n in NumPy and JAX, by n - 1 in PyTorch; both are standard deviations.
    if any(agrees(_diagonals(cosines, 1, count // 2, ddof)) for ddof in np.ndindex(2, 2)):
        return None
    right = _diagonals(cosines, 1, count // 2)
    if agrees(right[::-1]):
        return "the two have changed places: along the diagonals first"
    if agrees([value**2 for value in right]):
        return "these are squared: a standard deviation is the root of a variance"
    others = {
        "all diagonals": (0, count - 1),
        "all diagonals but the main one": (1, count - 1),
        "the main diagonal too": (0, count // 2),
    }
    for what, (first, last) in others.items():
        if agrees(_diagonals(cosines, first, last)):
            return f"this takes {what}: the statement asks for distances from 1 to half the length"
    if agrees(_diagonals(table @ table.T, 1, count // 2)):
        return "these are of dot products: divide each row by its norm first"
    if agrees(_diagonals(centred @ centred.T, 1, count // 2)):
        return "the mean row was subtracted: that is for part (c)"
    return (
        "not what the file at hand gives: for each distance take the diagonal of the matrix of "
        "cosines, its standard deviation and its mean"
    )


def _judge_directions(answer) -> str | None:
    given, unit = the_one(answer), rounding(answer)
    table = gpt2_reference.positions()
    sizes = np.linalg.svd(table - table.mean(axis=0), compute_uv=False)
    plain = np.linalg.svd(table, compute_uv=False)
    uncentred = (plain[:3] ** 2).sum() / (plain**2).sum()

    def agrees(number: float) -> bool:
        return off(given, number, 3, unit) <= 1

    shares = (sizes**2).cumsum() / (sizes**2).sum()
    # Two shares may be the same to three decimals: then it takes more of them to tell.
    long = given != round(given, 3) and unit == ROUNDING["float32"]
    another = long and abs(given - uncentred) < 1e-5 < abs(given - shares[2])
    if agrees(shares[2]) and not another:
        return None
    if off(given / 100, shares[2], 3, unit) <= 1:
        return "report a fraction between 0 and 1, not percent"
    if agrees(sizes[:3].sum() / sizes.sum()):
        return "the variance along a direction goes with the square of the singular value"
    if agrees(shares[0]) or agrees(shares[1]):
        return "that is the share of fewer than three directions"
    if agrees(1 - shares[2]):
        return "that is what the three directions leave"
    if agrees(uncentred):
        return "subtract the mean row first"
    return "not what the file at hand gives: the squares of three singular values, of all squares"


# ---- 12.4 and 12.5: bits per character ----------------------------------------------------------


def _of_the_stand_in(low: float, high: float):
    """A rule for b and c that holds only where the file at hand is the stand-in."""
    return lambda a, b, c: gpt2_file().kind != STAND_IN or low <= min(b, c) <= max(b, c) <= high


_BITS = measured(
    3,
    (lambda *bits: min(bits) > 0, "bits per character are positive"),
    (
        lambda *bits: max(bits) <= 7,
        "no honest run that we know takes more than 7 bits per character: divide the loss of a "
        "token by the characters of a token",
    ),
    (
        lambda a, b, c: a >= 1.8,
        "the best character model that we know of, in the full budget, takes 2.1 bits per "
        "character: divide its loss by ln 2, and take text that it was not trained on",
    ),
    (
        _of_the_stand_in(1.8, 7),
        "the stand-in takes more bits than that, on either passage: divide by ln 2 as well",
    ),
    (
        lambda a, b, c: b <= 5,
        "on the preprocessed passage that is too much for either file: divide the loss of a token "
        "by the characters of a token",
    ),
    (
        lambda a, b, c: gpt2_file().kind == STAND_IN or max(b, c) <= 4,
        "the released model takes fewer bits than that: divide the loss of a token by the "
        "characters of a token",
    ),
    (
        lambda a, b, c: min(b, c) >= 0.5,
        "that is too good for text that a model has not learned by heart: count all characters of "
        "the passage once, and all its tokens once",
    ),
)

UNIFORM = math.log2(28)


def _honest(*losses: float) -> bool:
    return all(1.2 <= loss <= UNIFORM for loss in losses)


_BANDS = (
    "a best validation loss should lie between 1.2 bits per character, better than any run "
    "that we know, and 4.8, where all 28 characters are equally likely: nats of a token times "
    "tokens of a character, divided by ln 2"
)

_NO_MERGES = measured(
    2,
    (_honest, _BANDS),
    (
        lambda bytes_, characters: abs(bytes_ - characters) <= 0.5,
        "the two should lie within 0.5 bits of each other after some hundred steps, and nearer in "
        "the full budget: without merges a token is one character, so that windows, batches and "
        "steps can be the same",
    ),
)

_SIZES = measured(
    6,
    (lambda *six: _honest(*six[:3]), _BANDS),
    (
        lambda *six: six[3] > six[4] > six[5] >= 1,
        "the more tokens there are, the more rarely each occurs: three losses first, then three "
        "medians, in the order of the sizes",
    ),
    (
        lambda *six: six[3] >= 60 and six[4] >= 12 and six[5] >= 3,
        "the medians are too small: take them over the types that occur at all, in all of the "
        "first 100,128 characters",
    ),
    (
        lambda *six: six[3] <= 110 and six[4] <= 28 and six[5] <= 9,
        "the medians are too large: take the median, not the mean, and count in the first 100,128 "
        "characters only",
    ),
)

_SAME_WINDOWS = measured(1, (_honest, _BANDS))

EXERCISES = (
    Exercise(
        "12.1a",
        "Parameter census: a block, and GPT-2",
        "two whole numbers: the parameters of one block, and of the whole model",
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
    Exercise(
        "12.2b",
        "Checkpoint mismatches: what has no counterpart",
        "two lists of names: tensors of the file without destination, and parameters of the model "
        "without source",
        _judge_names,
        (
            "`gpt2_layout(cfg)` has the shapes of the file, `GPT_NAMES` the destinations.",
            "SwiGLU has three matrices where GELU has two, and another width.",
        ),
    ),
    Exercise(
        "12.2c",
        "Checkpoint mismatches: three silent mistakes",
        "three perplexities: without shifts, with `c_proj` turned, with query and key exchanged",
        _judge_mistakes,
        (
            "Load the right way first, then change the model.",
            "A model with `norm='rms'` cannot be loaded by `load_gpt2`: copy from a model that is, "
            "parameter by parameter, by the names that both have.",
            "`W_qkv` of PyTorch has the thirds in its rows, that of NNX in its columns.",
        ),
    ),
    Exercise(
        "12.3a",
        "The learned position table: norms",
        "a list of positions",
        _judge_standing_out,
        ("`Checkpoint(path)['wpe.weight']` is the table; mind that it may be in half precision.",),
    ),
    Exercise(
        "12.3b",
        "The learned position table: similarities",
        "two numbers: the mean spread along a diagonal, and the spread of the diagonals' means",
        _judge_diagonals,
        (
            "Rows divided by their norms, times themselves transposed, give all cosines at once.",
            "`np.diagonal(cosines, distance)` is the diagonal at that distance.",
        ),
    ),
    Exercise(
        "12.3c",
        "The learned position table: directions",
        "one fraction of the variance",
        _judge_directions,
        ("The squares of all singular values add up to the whole variance, times a constant.",),
    ),
    Exercise(
        "12.4",
        "Bits per character",
        "three numbers of bits per character: the character model, GPT-2 on the preprocessed "
        "passage, GPT-2 on the raw one",
        _BITS,
        (
            "c is the number of characters of the passage by the number of its tokens.",
            "Windows that follow each other share one token: the last of one is read by the next.",
        ),
    ),
    Exercise(
        "12.5a",
        "Subwords at small scale: no merges",
        "two losses in bits per character: with `vocab_size=256`, and of the character model",
        _NO_MERGES,
        ("How many characters has a token if there are no merges?",),
    ),
    Exercise(
        "12.5b",
        "Subwords at small scale: three sizes",
        "six numbers: three losses in bits per character, then three medians, for 512, 1,024 and "
        "2,048",
        _SIZES,
        (
            "Add up the lengths of the tokens to find how many of them cover 100,128 characters.",
            "`np.bincount` counts types; keep those that are not zero.",
        ),
    ),
    Exercise(
        "12.5c",
        "Subwords at small scale: windows of the same length",
        "one loss in bits per character",
        _SAME_WINDOWS,
        ("128 characters are 128 / c tokens.",),
    ),
)
