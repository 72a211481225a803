"""The exercises of chapter 10: training."""

import math
import re
from collections.abc import Mapping
from functools import cache

import numpy as np

from d2lgpt.corpus import preprocess
from d2lgpt.exercises.backends import Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import (
    WrongForm,
    counted,
    in_order,
    kind_of,
    rounding,
    short,
    spelled,
    to_number,
    to_numbers,
)
from d2lgpt.exercises.judges import compared, measured, numbers_in_order, tried

T, CHANGED = 128, 64  # the window of 10.1a, and the position where it is changed
BLOCKS = 6  # in the normalization experiment, in either budget

# ---- 10.1 ----------------------------------------------------------------------------------------


def _judge_changes(answer) -> str | None:
    """Whether the changes of the logits are those of a causal model."""
    changes = np.array(to_numbers(answer), float)
    if len(changes) != T:
        raise WrongForm(counted(len(changes), "number"))
    where = np.flatnonzero(changes)
    if (changes < 0).any():
        return "a largest absolute change is not negative"
    if not len(where):
        return "nothing changes: is the character at position 64 another one than before?"
    if where[0] == CHANGED:
        few = np.count_nonzero(changes[CHANGED + 1 :]) < (T - CHANGED) // 2
        return "later positions can look at the changed one, and most feel it" if few else None
    if where[0] > CHANGED:
        return f"the first change is at position {where[0]}: position 64 itself feels it too"
    if changes[:CHANGED].max() < 1e-4 * changes[CHANGED:].max():
        return (
            "before position 64 the change must be exactly zero: compare two runs of the same kind"
        )
    if where[0] == CHANGED - 1:
        return "the first change is at position 63: count positions from 0"
    return "positions before 64 have changed: is that a model that looks ahead, or in dropout?"


@cache
def _trigrams() -> np.ndarray:
    """ln p(next | two before) of English letters, from the help pages that Python carries."""
    from pydoc_data.topics import topics

    ids = _letters(preprocess("\n".join(topics[name] for name in sorted(topics))))
    one = np.bincount(ids, minlength=27) / len(ids)
    two = np.bincount(ids[:-1] * 27 + ids[1:], minlength=27**2).reshape(27, 27)
    three = np.bincount((ids[:-2] * 27 + ids[1:-1]) * 27 + ids[2:], minlength=27**3)
    three = three.reshape(27, 27, 27)
    two = (two + 5 * one) / (two.sum(axis=-1, keepdims=True) + 5)
    return np.log((three + 5 * two) / (three.sum(axis=-1, keepdims=True) + 5))


def _letters(text: str) -> np.ndarray:
    return np.array([0 if letter == " " else ord(letter) - 96 for letter in text])


def _judge_sample(answer) -> str | None:
    """Whether a text may be a sample of the unmasked model: anything but English."""
    if isinstance(answer, (list, tuple)) and len(answer) == 1:  # a batch of one
        answer = answer[0]
    if not isinstance(answer, str):
        raise WrongForm(kind_of(answer))
    prompt = "the time traveller "
    text = answer.replace("<unk>", " ")
    text = text.removeprefix(prompt) if len(text) > 100 else text
    if odd := sorted(set(re.sub("[a-z ]", "", text))):
        return f"the model cannot write {odd[0]!r}: its characters are small letters and the space"
    if len(text) != 100:
        count = counted(len(text), "character")
        return f"the text after the prompt has {count}, and 100 are asked for"
    if text == text[0] * 100 and text[0] != " ":  # JAX fills its buffer with the id of the space
        return "the same character a hundred times: is the temperature 1?"
    ids = _letters(text)
    loss = -_trigrams()[ids[:-2], ids[1:-1], ids[2:]].mean()
    # In our trials English was at 1.9 to 3.1, samples of the unmasked model at 3.5 to 8.6.
    if loss < 3:
        return "this reads much like English: is it a sample of the masked model?"
    return None


# ---- 10.2 ----------------------------------------------------------------------------------------

BASELINES = ("uniform", "unigram", "bigram")

_three_numbers = numbers_in_order(
    [3.332205, 2.828003, 2.276458],
    digits=5,
    wrong={
        (4.807355, 4.079946, 3.284235): "these are bits: multiply by ln 2 to have nats",
        (3.295837, 2.828003, 2.276458): (
            "the vocabulary has 28 tokens: <unk> is one, even if it never occurs"
        ),
        (3.332205, 2.828003, 5.104400): (
            "that is the entropy of pairs: take off that of the first of the two"
        ),
        (1.447158, 1.228187, 0.988653): "take the natural logarithm, not that to base 10",
    },
    names=BASELINES,
)


def _baselines_or_numbers(answer) -> str | None:
    return (tried(_try_baselines) if callable(answer) else _three_numbers)(answer)


_baselines_or_numbers.wrong = _three_numbers.wrong


def _entropy(ids: np.ndarray) -> float:
    counts = np.unique(ids, return_counts=True)[1]
    p = counts / counts.sum()
    return float(-(p * np.log(p)).sum())


def _try_baselines(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    """Whether a function computes the three losses of a short random text."""
    V = int(rng.integers(7, 10))
    apart = 0
    while apart < 1e-3:  # a text in which it matters which of its tokens are counted
        p = rng.dirichlet(np.ones(V - 2))  # the last two tokens never occur
        ids = np.concatenate([[0, 1, 1, 0], rng.choice(V - 2, size=40, p=p), [2, 0, 3]])
        apart = np.diff(sorted(_entropy(part) for part in (ids, ids[1:], ids[:-1]))).min()
    # One text, not several: JAX compiles everything anew for another length.
    got = answer(backend.array(ids.astype(np.int32 if backend.name == "JAX" else int)), V)
    try:
        three = to_numbers(got, BASELINES)
    except WrongForm as form:
        return f"it returns {form}, and should return three numbers: uniform, unigram, bigram"
    if len(three) != 3:
        return "it should return three numbers: uniform, unigram, bigram"
    return _judge_baselines(np.array(three, float), rounding(got), ids, V)


def _judge_baselines(got: np.ndarray, unit: float, ids: np.ndarray, V: int) -> str | None:
    n = len(ids)
    pairs = ids[:-1] * V + ids[1:]
    joint, first, second = _entropy(pairs), _entropy(ids[:-1]), _entropy(ids[1:])
    wanted = np.array([math.log(V), _entropy(ids), joint - first])
    of_all = np.bincount(ids, minlength=V)
    often = np.bincount(pairs, minlength=V * V).reshape(V, V)
    sloppy = -np.mean(np.log(often[ids[:-1], ids[1:]] / of_all[ids[:-1]]))
    smooth = (often + 1) / (often + 1).sum(axis=1, keepdims=True)
    smoothed = -np.mean(np.log(smooth[ids[:-1], ids[1:]]))

    def but(place: int, value: float) -> np.ndarray:
        """The right three numbers but for one."""
        return np.where(np.arange(3) == place, value, wanted)

    occurring = math.log(len(set(ids.tolist())))
    mistakes = [
        (wanted / math.log(2), "these are bits: multiply by ln 2 to have nats"),
        (wanted / math.log(10), "take the natural logarithm, not that to base 10"),
        (np.exp(wanted), "these are perplexities: the loss is their logarithm"),
        (-wanted, "the sign is the other way round"),
        (wanted[::-1], "the order is uniform, unigram, bigram"),
        (
            but(0, occurring),
            "the uniform predictor has all vocab_size tokens, also those that do not occur",
        ),
        (
            but(1, math.log(n)),
            "unigram: each token counts as one of its own; a dictionary or a `Counter` needs "
            "plain numbers, `ids.tolist()`",
        ),
        (but(2, joint), "that is the entropy of pairs: take off that of the first of the two"),
        (
            but(2, joint - second),
            "bigram: the frequencies are to be conditional on the token before",
        ),
        (but(2, wanted[2] * (n - 1) / n), "bigram: the mean is over all tokens but the first"),
        (
            but(2, sloppy),
            "bigram: the last token has no successor, so it counts as nobody's predecessor",
        ),
        (but(2, joint - wanted[1]), "bigram: of the tokens before, the last one of ids is none"),
        (but(2, joint - math.log(V)), "bigram: the token before has its own frequencies"),
        (but(2, smoothed), "bigram: count as it is, without adding one to each pair"),
        (
            but(2, wanted[1]),
            "the third number repeats the second: bigram looks at the token before",
        ),
    ]
    hint = compared(got, unit, wanted, mistakes)
    if hint != "":
        return hint
    near = np.abs(got - wanted) <= (1e-5 + 8 * unit) * np.abs(wanted)
    if not near[0]:
        return "the loss of the uniform predictor depends on vocab_size alone"
    if not near[1]:
        return "the unigram loss is not the entropy of all frequencies of ids"
    return "uniform and unigram are right: look at bigram again"


# ---- 10.3 ----------------------------------------------------------------------------------------


def _judge_word(answer) -> str | None:
    if isinstance(answer, (list, tuple)) and len(answer) == 1:
        answer = answer[0]
    if not isinstance(answer, str):
        raise WrongForm(kind_of(answer))
    text = spelled(answer)  # "bi-gram" and "Bigram" are the same
    named = [word for word in BASELINES if word in text]
    if len(named) != 1:
        raise WrongForm(f"the text {short(answer)}")
    return {
        "bigram": None,
        "unigram": (
            "without attention a position still knows its own character, and can use it: what "
            "does the shortcut carry?"
        ),
        "uniform": (
            "without attention there is still a token table with a head: what does a position "
            "know of itself?"
        ),
    }[named[0]]


def _judge_plateau(answer) -> str | None:
    """Whether a divergence and two lists of token spreads are those of a collapsed model."""
    if isinstance(answer, Mapping):
        answer = in_order(answer, ("divergence", "trained", "fresh"))
    if not isinstance(answer, (tuple, list)):
        raise WrongForm(kind_of(answer))
    if len(answer) != 3:
        raise WrongForm(f"{kind_of(answer)} of length {len(answer)}")
    divergence = to_number(answer[0])
    trained, fresh = (np.array(to_numbers(part), float) for part in answer[1:])
    for spreads in (trained, fresh):
        if len(spreads) != BLOCKS:
            raise WrongForm(f"a list of {counted(len(spreads), 'spread')} for {BLOCKS} blocks")
    if divergence < -1e-5:  # of two distributions that agree, float32 may leave -1e-7
        return "a divergence is not negative: the sum of p ln(p/q) over all tokens, p the model's"
    if divergence > 0.1:
        return (
            f"a divergence of {divergence:.2g} nats is not that of a model on the plateau: train "
            "the post-norm model at the rate of the chapter, and count unigrams in its own text"
        )
    for spreads in (trained, fresh):
        if spreads.min() < 0 or spreads.max() > 1 + 1e-6:
            return "a spread is between 0 and 1: H̄ is the mean of the rows of this H"
        if spreads.min() > 0.9999:
            return "a spread of 1 says that the mean is zero: is it the mean over tokens?"
    if trained[-1] > 0.1 > fresh[-1]:
        return "the lists have changed places: the trained model's comes first"
    if fresh.min() < 0.2:
        return "in a fresh model the tokens are not alike yet, after no block"
    if trained[-1] > 0.05:
        return (
            "after the last block of a model on the plateau the tokens are all but alike: is "
            "`pre_norm` False, and H the output of the block, with its normalization?"
        )
    if trained[0] < trained[-1] - 1e-3:  # among tokens that are all alike, rounding decides
        return "the spread falls from block to block: is the list in the order of the blocks?"
    return None


EXERCISES = (
    Exercise(
        "10.1a",
        "Unmasked attention: what the mask hides",
        "an array of 128 numbers: the largest absolute change of a logit at each position",
        _judge_changes,
        (
            "Run the model twice, on the window and on its changed copy, and subtract. The largest "
            "change is over the vocabulary.",
            "Switch dropout off: `eval_mode(model)`.",
        ),
    ),
    Exercise(
        "10.1b",
        "Unmasked attention: the losses",
        "four losses in nats: of the masked model training and validation, then of the unmasked",
        measured(
            4,
            (lambda *losses: min(losses) > 0, "a mean of such losses is positive"),
            (lambda *losses: max(losses) < 7, "that is too much for a loss in nats"),
            (
                lambda a, b, c, d: not (c > a and d > b),
                "the masked model comes first, and it has the higher losses",
            ),
            (
                lambda a, b, c, d: b > 1.2,
                "no honest model of single characters predicts new text so well after 200 steps: "
                "the first two numbers are the masked model's, training and validation",
            ),
            (
                lambda a, b, c, d: 0.4 < a < 2.8,
                "the training loss of the masked model is another after 200 steps, in either "
                "budget: take the mean of the last 50, at the rate of the main run",
            ),
            (
                lambda a, b, c, d: c < 1.2 and d < 1.2,
                "the unmasked model should be far below that on both texts: is its attention "
                "made by the subclass, and `is_causal` False there?",
            ),
            (
                lambda a, b, c, d: c < a - 0.2,
                "the two models hardly differ in training: is one of them unmasked?",
            ),
        ),
        (
            "A class inside the class: `class CausalAttention(d2l.GPT.CausalAttention)`.",
            "Position t is to predict character t + 1. What stands at position t + 1 of its input?",
        ),
    ),
    Exercise(
        "10.1c",
        "Unmasked attention: the sample",
        "the sampled text, 100 characters",
        _judge_sample,
        ("`generate` continues `data.vocab.encode(...)`, as an array of shape (1, T).",),
    ),
    Exercise(
        "10.2",
        "Loss baselines",
        "the function baselines(ids, vocab_size), or three numbers with four decimals: uniform, "
        "unigram, bigram (of The Time Machine)",
        _baselines_or_numbers,
        ("H(next | current) = H(pair) − H(current).",),
    ),
    Exercise(
        "10.3a",
        "The post-norm plateau: without attention",
        "one word: uniform, unigram or bigram",
        _judge_word,
        ("What can the output at a position depend on, if nothing comes from other positions?",),
    ),
    Exercise(
        "10.3b",
        "The post-norm plateau: inside",
        "(the divergence, six token spreads of the trained model, six of a fresh one)",
        _judge_plateau,
        (
            "KL(p ‖ q) is the sum of p ln(p/q) over tokens, with the model's p. <unk> never "
            "occurs, so q is 0 there: leave it out, or give it a tiny q.",
            "The outputs of the blocks: the token table first, then one block after the other.",
        ),
    ),
    Exercise(
        "10.3c",
        "The post-norm plateau: warmup",
        "four losses in nats: at an eighth, a quarter, a half and the end of the steps",
        measured(
            4,
            (lambda *losses: min(losses) > 0, "a mean of such losses is positive"),
            (
                lambda *losses: max(losses) < 3.4,
                "a loss above ln 28 = 3.33 would be worse than knowing nothing: is it in bits?",
            ),
            (
                # On the plateau in the end is an honest result, at too high a rate. But whoever
                # warms up is late at the first stop: 2.91 to 3.03 in our trials, else 2.81 to 2.89.
                lambda first, *rest: min(first, *rest) < 2.79 or first > 2.9,
                "these are on the plateau from the first stop on, as without any warmup: let the "
                "rate begin at 0 and rise for a quarter of the steps, in the quick budget to 5e-3",
            ),
            (
                lambda first, *rest: first > 1.5,
                "so low while the rate is still rising: in order of the steps, please, and of the "
                "post-norm model",
            ),
            (
                lambda first, *rest: first >= min(rest),
                "what was learned by the first of the stops is lost again: is the rate too high?",
            ),
        ),
        (
            "The rate is the peak times min(1, t / W) at step t, with W the steps of the warmup: "
            "`torch.optim.lr_scheduler.LambdaLR`, or `optax.linear_schedule`.",
        ),
    ),
)
