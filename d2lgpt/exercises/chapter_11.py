"""The exercises of chapter 11: sampling."""

import math
from collections.abc import Mapping

import numpy as np

from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import WrongForm, counted, in_order, kind_of, rounding, to_number
from d2lgpt.exercises.judges import NotYet, another_shape, compared, measured, returned, tried

LENGTH = 20  # characters in a window of 11.1
GRID = 128  # the probabilities of 11.3 are so many parts of 1
LN_28 = math.log(28)


# ---- 11.1: verbatim recall ----------------------------------------------------------------------


def _fraction(text: str, training_text: str, length: int = LENGTH, step: int = 1) -> float:
    """The recall of a text; with another length or step, that of people's mistakes."""
    windows = [text[i : i + length] for i in range(0, len(text) - length + 1, step)]
    return sum(window in training_text for window in windows) / len(windows) if windows else 0.0


def _is(result, right: float) -> bool:
    """Whether a fraction is the right one, in the precision in which it comes.

    The next fraction of n windows is 1/n away, and of one window more or fewer 1/n²: of the texts
    below, 0.02 and 2e-5 at the least.
    """
    return abs(to_number(result) - right) <= (1e-6 + 4 * rounding(result)) * max(right, 0.05)


def _recall_problem(recall) -> str | None:
    rng = np.random.default_rng()

    def letters(count: int, alphabet: str) -> str:
        return "".join(rng.choice(list(alphabet), size=count))

    book = letters(300, "abcdefghij ")
    start = int(rng.integers(30, 200))
    known, strange = book[start : start + 60], letters(45, "uvwxyz")
    count = len(known) - LENGTH + 1
    found = recall(known, book)
    if not _is(found, 1):
        if _is(found, 100):
            return "that is in percent: return a fraction between 0 and 1"
        if _is(found, count):
            return "it counts the windows that are found: divide by how many there are"
        if _is(found, count / len(known)):
            return (
                "it divides by the number of characters: a text of n characters has n − 19 windows"
            )
        found = to_number(found)
        return f"a text copied from the training text should have recall 1, and gets {found:g}"
    if not _is(recall(strange, book), 0):
        return "a text that shares no letter with the training text should have recall 0"
    if not _is(recall(known[:LENGTH], book), 1):
        return "a text of exactly 20 characters is one window, and that window counts"

    # Pieces of the book from anywhere, of any length, among letters that it does not have.
    mixed = ""
    for i, size in enumerate(rng.permutation([19, 20, 21, 27, 33, 40])):
        start = 50 * i + int(rng.integers(0, 50 - size))
        mixed += letters(int(rng.integers(1, 9)), "uvwxyz") + book[start : start + size]
    mixed += letters(5, "uvwxyz")
    for text in (mixed, mixed[:83], book[:20] + strange, strange + book[-20:]):
        problem = _another_recall(recall(text, book), text, book)
        if problem:
            return problem
    twice = "z" + 2 * book[40:70] + "z"
    if not _is(recall(twice, book), _fraction(twice, book)):
        return "a window that comes twice in the text counts twice"
    if not _is(recall(book[:LENGTH], book[1:]), 0):
        return "a window counts if all of its 20 characters occur, one after the other"
    for short in ("", book[10:29]):
        try:
            nothing = _is(recall(short, book), 0)
        except (ZeroDivisionError, WrongForm):
            nothing = False
        if not nothing:
            return "a text shorter than 20 characters has no window: its recall is to be 0"
    return None


def _another_recall(found, text: str, book: str) -> str | None:
    if _is(found, _fraction(text, book)):
        return None
    if not _is(found, 0):
        for length in (LENGTH - 1, LENGTH + 1):
            if _is(found, _fraction(text, book, length)):
                return f"these are windows of {length} characters: take {LENGTH}"
        if _is(found, _fraction(text, book, step=LENGTH)):
            return "a window begins at every character, so that each shares 19 with the next"
        count = len(text) - LENGTH + 1
        if _is(found, round(to_number(found) * (count - 1)) / (count - 1)):
            has = f"a text of {len(text)} characters has {count} windows"
            return f"{has}, the last of them included"
    return (
        "in a text of which some windows occur in the training text, it finds another fraction: "
        "look for each window anywhere in the training text, from its first character to its last"
    )


_TWO_FRACTIONS = measured(
    2,
    (
        lambda sampled, unseen: 0 <= sampled <= 1 and 0 <= unseen <= 1,
        "the function is right, but recall is a fraction between 0 and 1: not a count, not percent",
    ),
    (
        lambda sampled, unseen: unseen < 0.05,
        "the function is right, but of a text that the model has not seen hardly a window should "
        "be found: let the training text end where the training windows end, and the other begin "
        "at character 103,128",
    ),
    (
        lambda sampled, unseen: sampled > unseen,
        "the function is right, but a model that has read its text over a hundred times recites "
        "more of it than a stranger does: take the new characters without the prompt, and the text "
        "that this model was trained on",
    ),
)


def _judge_recall(answer) -> str | None:
    if isinstance(answer, Mapping):
        answer = in_order(answer, ("recall", "samples", "unseen"))
    if not isinstance(answer, (tuple, list)):
        raise WrongForm(kind_of(answer))
    if len(answer) != 3:
        raise WrongForm(f"{kind_of(answer)} of length {len(answer)}")
    recall, *fractions = answer
    if not callable(recall) or isinstance(recall, type):
        raise WrongForm(f"{kind_of(recall)} in the place of the function")
    fractions = [to_number(fraction) for fraction in fractions]
    try:
        problem = _recall_problem(recall)
    except WrongForm as form:
        problem = f"recall returns {form}, and should return a fraction"
    return problem or _TWO_FRACTIONS(fractions)


_EARLY = measured(
    1,
    (lambda recall: 0 <= recall <= 1, "recall is a fraction between 0 and 1, not percent"),
    (
        lambda recall: recall < 0.25,
        "at the step of its lowest validation loss a model has hardly begun to recite, in either "
        "budget: draw from the model as it was then, not as it is at the end",
    ),
)

_DROPOUT = measured(
    3,
    (
        lambda loss, step, recall: step == round(step) and 10 <= step <= 2000,
        "the second number is a step: count training steps, not measurements",
    ),
    (
        lambda loss, step, recall: 0 <= recall <= 1,
        "recall is a fraction between 0 and 1, not percent",
    ),
    (
        lambda loss, step, recall: loss < 2.8,
        "the lowest validation loss should lie well below that of the frequencies alone, 2.83 "
        "nats: report the lowest, not the last, and nats, not bits",
    ),
    (
        lambda loss, step, recall: loss > 1.2,
        "no run that we know gets below 1.2 nats on text that it has not seen, in either budget: "
        "is this the training loss?",
    ),
)


# ---- 11.2: temperature --------------------------------------------------------------------------


def _softmax(z: np.ndarray) -> np.ndarray:
    exp = np.exp(z - z.max(axis=-1, keepdims=True))
    return exp / exp.sum(axis=-1, keepdims=True)


def _trial_tempered(tempered, backend, rng) -> str | None:
    def run(logits, temperature) -> tuple[np.ndarray, float]:
        with np.errstate(all="ignore"):
            got = tempered(backend.array(np.asarray(logits, np.float32)), temperature)
        return returned(got, backend, finite=False)

    def same(got, wanted, mistakes=()) -> str | None:
        # In half precision logits are rounded too: by a hundredth at 3, and so the probabilities.
        return compared(*got, wanted, mistakes, operations=16)

    # Quarters, which every precision has, and so far apart that no temperature hides another.
    logits = rng.permutation(np.arange(7) - 3) + rng.integers(-1, 2, size=7) / 4
    wanted = _softmax(logits)
    got = run(logits, 1.0)
    if problem := another_shape(got[0], wanted):
        return problem
    if not _adds_up(*got):
        return f"at temperature 1 the probabilities add up to {got[0].sum():.3g}, not to 1"
    if same(got, wanted) is not None:
        return "at temperature 1 it should be the softmax of the logits, and is not"
    for temperature in (float(rng.uniform(0.3, 0.8)), float(rng.uniform(1.5, 4))):
        got, wanted = run(logits, temperature), _softmax(logits / temperature)
        mistakes = [
            (
                _softmax(logits * temperature),
                "the logits are multiplied by the temperature: a low one should sharpen",
            ),
            (_softmax(logits), "another temperature gives the same probabilities"),
        ]
        hint = same(got, wanted, mistakes)
        if hint is None:
            continue
        if hint:
            return hint
        if not _adds_up(*got):
            return (
                f"at temperature {temperature:.2f} the probabilities add up to "
                f"{got[0].sum():.3g}: the temperature belongs inside the softmax"
            )
        return f"at temperature {temperature:.2f} it is not the softmax of z / τ"
    for shift in (1000, -1000):
        got, _ = run(logits + shift, 1.0)
        if not np.isfinite(got).all():
            return (
                f"for logits around {shift:,} it returns {got[~np.isfinite(got)][0]}: exp leaves "
                "the range of a float. What can be taken off all logits without changing the "
                "probabilities?"
            )
    places = rng.permutation(7)
    cold = np.array([1000.0, 996, 992, 984, 0, -1000, 988])[places]  # bfloat16 counts in fours
    got, wanted = run(cold, 0.001), _softmax(cold / 0.001)
    if not np.isfinite(got[0]).all():
        return "for logits of 1,000 at temperature 0.001 it returns values that are not finite"
    if same(got, wanted) is not None:
        return "at temperature 0.001 the token with the largest logit should have probability 1"
    cold[places == 6] = 1000  # two favourites
    if same(run(cold, 0.001), _softmax(cold / 0.001)) is not None:
        return "where two logits are equally large, both tokens should stay equally probable"
    if same(run(cold, 1e6), _softmax(cold / 1e6)) is not None:
        return "at temperature 1,000,000 all tokens should be nearly equally probable"
    return None


def _adds_up(probas: np.ndarray, unit: float) -> bool:
    """Whether probabilities add up to 1, but for the rounding of each."""
    return bool(abs(probas.sum() - 1) <= 1e-5 + 4 * unit)


_FOUR_ENTROPIES = measured(
    4,
    (lambda *means: min(means) >= -1e-5, "an entropy is never negative: mind the sign"),
    (
        lambda *means: max(means) <= LN_28 + 1e-5,
        "no entropy over 28 tokens exceeds ln 28 = 3.33 nats: take the mean over the steps, not "
        "the sum, and natural logarithms (a bit is 0.69 nats)",
    ),
    (
        lambda *means: means[0] <= means[-1],
        "these fall: a higher temperature makes the probabilities more alike",
    ),
    (
        lambda *means: list(means) == sorted(set(means)),
        "with a trained model the four means should rise with the temperature, in either budget",
    ),
    (
        lambda *means: means[-1] > 1.2,
        "at τ = 4 the mean should come near its limit, in either budget: is it the entropy of "
        "softmax(z/τ), and not that of softmax(z)?",
    ),
    (
        lambda *means: means[0] < 2.2,
        "at τ = 0.5 a trained model is surer than that, in either budget: has this one been "
        "trained?",
    ),
)


# ---- 11.3: nucleus sampling ---------------------------------------------------------------------


def _kept(probas: np.ndarray, top_p: float) -> int:
    """How many tokens of one row are in the nucleus."""
    mass = np.cumsum(np.sort(probas.astype(np.float64))[::-1])
    return int(min(np.searchsorted(mass, min(top_p, mass[-1])) + 1, len(probas)))


def _nucleus(probas: np.ndarray, top_p: float) -> np.ndarray:
    """The reference, row by row; of equal probabilities, the first stay."""
    rows = probas.reshape(-1, probas.shape[-1])
    out = np.zeros(rows.shape)
    for row, new in zip(rows, out, strict=True):
        ids = np.argsort(-row, kind="stable")[: _kept(row, top_p)]
        new[ids] = row[ids] / row[ids].astype(np.float64).sum()
    return out.reshape(probas.shape)


def _row_problem(got: np.ndarray, unit: float, probas: np.ndarray, top_p: float) -> str | None:
    """What is wrong with the nucleus of one row, if anything."""
    if not np.isfinite(got).all():
        return f"with top_p={top_p:g} it returns {got[~np.isfinite(got)][0]}: is the set empty?"
    kept, wanted = int((got > 0).sum()), _kept(probas, top_p)
    if kept == 0:
        return f"with top_p={top_p:g} no token is left: the most probable one always stays"
    if not _adds_up(got, unit):
        return f"the new probabilities add up to {got.sum():.3g}: scale them to add up to 1"
    if kept != wanted:
        mass = np.sort(probas)[::-1].cumsum()
        if kept == wanted - 1:
            return (
                f"the tokens that it keeps have a mass of {mass[kept - 1]:.3g}, less than "
                f"top_p={top_p:.3g}: the token with which p is reached belongs to the set"
            )
        if kept > wanted:
            return (
                f"it keeps {counted(kept, 'token')} where {wanted} have a mass of "
                f"{mass[wanted - 1]:.3g}, enough for top_p={top_p:.3g}: the smallest set is asked "
                "for"
            )
        kept = counted(kept, "token")
        return f"it keeps {kept} where {wanted} are needed to reach top_p={top_p:.3g}"
    order = np.argsort(-probas, kind="stable")[:wanted]
    right = np.sort(probas[order] / probas[order].sum())
    bound = 1e-5 + 4 * unit
    if np.abs(np.sort(got[got > 0]) - right).max() > bound:
        return "the tokens that stay should keep the ratios of their probabilities"
    # Which of equal tokens stay is left open, so a kept token is compared with its own probability.
    if np.abs(got - probas / probas[order].sum())[got > 0].max() > bound:
        return "these are the probabilities, but not each at the place of its token"
    return None


def _trial_nucleus(nucleus, backend, rng) -> str | None:
    def run(probas: np.ndarray, top_p: float) -> tuple[np.ndarray, float]:
        given = backend.array(probas.copy())
        with np.errstate(all="ignore"):
            got = returned(nucleus(given, top_p), backend, finite=False)
        if not np.array_equal(backend.numpy(given), probas):
            raise NotYet("it changes the array that it is given: return a new one")
        return got

    def drawn(*shape: int) -> np.ndarray:
        """Rows of different probabilities: 128ths, so that sums are exact in every precision."""
        size = shape[-1]
        rows = []
        for _ in range(math.prod(shape[:-1])):
            extra = rng.multinomial(GRID - size * (size + 1) // 2, _softmax(rng.normal(size=size)))
            rows.append(rng.permutation(np.arange(1, size + 1) + np.sort(extra)))
        return (np.array(rows).reshape(shape) / GRID).astype(np.float32)

    def clear(low: float, high: float) -> float:
        """A top_p in the middle between two sums that probabilities may have."""
        return (int(rng.integers(low * GRID, high * GRID)) + 0.5) / GRID

    for _ in range(3):  # one row, of which no token reaches p alone
        while (probas := drawn(9)).max() > 0.5:
            pass
        top_p = clear(0.5, 0.9)
        got, unit = run(probas, top_p)
        problem = another_shape(got, probas) or _row_problem(got, unit, probas, top_p)
        if problem:
            return problem
    exact = rng.permutation(np.array([1, 1, 2, 4, 8, 16], np.float32) / 32)
    for top_p in (0.5, 0.75, 0.875):  # reached exactly
        if problem := _row_problem(*run(exact, top_p), exact, top_p):
            return problem
    probas = drawn(12)
    if compared(*run(probas, 1.0), probas, operations=2) is not None:
        return "top_p=1 should change nothing"
    if problem := _row_problem(*run(probas, 1e-6), probas, 1e-6):
        return problem
    for equal in (np.full(8, 1 / 8, np.float32), np.array([0, 0.25, 0.5, 0.25, 0], np.float32)):
        if problem := _row_problem(*run(equal, 0.6), equal, 0.6):
            return f"where tokens are equally probable, {problem}"
    # Each row has a nucleus of its own; with p = 1 it has all tokens, whatever was drawn.
    for shape, whole in (((4, 9), False), ((2, 3, 9), False), ((2, 3, 9), True)):
        probas = drawn(*shape)
        top_p = 1 if whole else clear(0.5, 0.8)
        got, unit = run(probas, top_p)
        if problem := another_shape(got, probas):
            return problem
        for row, wanted in zip(got.reshape(-1, 9), probas.reshape(-1, 9), strict=True):
            if problem := _row_problem(row, unit, wanted, top_p):
                return f"in an array of shape {shape}, where each row has its own set, {problem}"
    return None


# What holds for any distribution over 50,257 tokens. Four tokens with a mass of 0.9 or more leave
# at most 0.9 ln(4 / 0.9) + 0.1 ln(50253 / 0.1) = 2.66 nats, and if they have less, there are at
# least 0.7. Where 50 tokens have 0.9 or more, there are at most 4.93 nats; where less, at least 1.
_TWO_ENTROPIES = measured(
    2,
    (lambda nucleus, top_k: min(nucleus, top_k) > 0, "an entropy is positive"),
    (
        lambda nucleus, top_k: nucleus < top_k,
        "the first is the entropy below which the nucleus is small, the second the one above which "
        "top-k discards much: the first is the smaller",
    ),
    (
        lambda nucleus, top_k: nucleus >= 0.65,
        "with less than 0.7 nats the four most probable tokens always have nine tenths of the "
        "mass, so the first border lies higher; is that entropy in nats?",
    ),
    (
        lambda nucleus, top_k: nucleus < 4,
        "with more than 2.66 nats four tokens never have nine tenths of the mass, so the first "
        "border should lie lower; is that entropy in nats, and taken before any are cut off?",
    ),
    (
        lambda nucleus, top_k: 1 <= top_k <= 5,
        "whichever file it is, with 4.93 nats or more top-k always discards more than a tenth, and "
        "with less than one never: the second border should lie in between, in nats",
    ),
)


EXERCISES = (
    Exercise(
        "11.1a",
        "Verbatim recall: the function, and two texts",
        "a tuple of three: the function recall(text, training_text), the recall of ten samples, "
        "and that of the unseen text",
        _judge_recall,
        (
            "The windows of a text begin at characters 0, 1, 2, … How many fit into n characters?",
            "In Python, `window in training_text` looks for one text inside another.",
            "Decode only what is new, `out[:, prefix.shape[1]:]`: the prompt is in the book.",
        ),
    ),
    Exercise(
        "11.1b",
        "Verbatim recall: stopped early",
        "one fraction: the recall of ten samples of the model at its lowest validation loss",
        _EARLY,
        (
            "Measure with `val_loss` every so many steps.",
            "Keep a copy whenever the loss is lower than before: `deepcopy`, or `nnx.clone`.",
        ),
    ),
    Exercise(
        "11.1c",
        "Verbatim recall: dropout",
        "three numbers: the lowest validation loss in nats, its step, and the recall at the end",
        _DROPOUT,
        ("`dropout=0.3` is an argument of `GPT`; all else stays as in (a).",),
    ),
    Exercise(
        "11.2a",
        "Temperature limits: the function",
        "the function tempered(logits, temperature)",
        tried(_trial_tempered),
        (
            "For the proof, divide numerator and denominator of the softmax by its largest term.",
            "1,000 divided by 0.001 is a million. What does adding a constant to all logits do?",
        ),
    ),
    Exercise(
        "11.2b",
        "Temperature limits: along the model's own text",
        "four means in nats, for τ = 0.5, 1, 2 and 4",
        _FOUR_ENTROPIES,
        (
            "Draw the text first. One forward pass over it then gives the logits of all steps, as "
            "long as it is no longer than `max_len`; else take a pass for each step.",
            "The logits at position t − 1 are those from which token t was drawn.",
        ),
    ),
    Exercise(
        "11.3a",
        "Nucleus sampling: the function",
        "the function nucleus(probas, top_p)",
        tried(_trial_nucleus),
        (
            "Rank the probabilities of each row and add them up along the last axis.",
            "A token is in the set exactly if those before it have a mass below p.",
            "`token_probabilities` shows how to carry numbers back to the places of their tokens.",
        ),
    ),
    Exercise(
        "11.3b",
        "Nucleus sampling: beside top-k",
        "two entropies in nats: below the first fewer than 5 tokens are in the nucleus, above the "
        "second top-k discards more than a tenth",
        _TWO_ENTROPIES,
        (
            "At each step keep three numbers of the probabilities before any are cut off: their "
            "entropy, how many are in the nucleus, and one minus the mass of the largest 50.",
            "Sort the steps by entropy: which is the last one that breaks the rule?",
        ),
    ),
)
