"""Ways to judge an answer: each returns None if it is right, else the hint that fits.

A judge raises `WrongForm` if the answer is not of the kind that the exercise asks for. Whatever
else it raises comes from the answer itself, and is reported as such.

What is computed is rounded, so a judge compares within a tolerance: well above what rounding does
in the precision of the answer, on any processor, and below the smallest mistake that it is to
notice. `tests/test_judges.py` hands in the nearest wrong answer to each.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import permutations
from typing import Any

import numpy as np

from d2lgpt.exercises.backends import Backend, candidates
from d2lgpt.exercises.forms import (
    ORDINALS,
    ROUNDING,
    WrongForm,
    counted,
    is_array,
    items,
    kind_of,
    parts,
    rights,
    rounding,
    short,
    spelled,
    the_one,
    to_numbers,
    to_positions,
    to_truths,
)

#: Takes an answer. A judge that knows wrong answers has them, with their hints, as `.wrong`.
Judge = Callable[[Any], str | None]

#: What is said when a wrong answer is none of those that people usually give.
NOT_YET = "not what comes out here: compare each step with the statement"


class NotYet(Exception):
    """What a function returned cannot be judged; the message is the hint."""


#: Significant digits: None for exactly, one number for all, or one entry for each number.
Digits = int | None | tuple[int | None, ...]

# ---- Numbers ------------------------------------------------------------------------------------


def number(right: float, *, digits: int | None = None, wrong: Mapping[float, str]) -> Judge:
    """One number: exact if it is whole, else to `digits` significant digits.

    `wrong`: numbers that people arrive at, and what each of them has forgotten.
    """
    return numbers_in_order([right], digits=digits, wrong={(w,): h for w, h in wrong.items()})


def numbers_in_order(
    right: Iterable[float],
    *,
    digits: Digits = None,
    wrong: Mapping[tuple[float, ...], str],
    names: Iterable = (),
) -> Judge:
    """Several numbers in the order of the statement; a dictionary may have them by `names`."""
    right, names = tuple(right), tuple(names)
    each = digits if isinstance(digits, tuple) else (digits,) * len(right)

    def judge(answer) -> str | None:
        given = [the_one(answer)] if len(right) == 1 else to_numbers(answer, names)
        if len(given) != len(right):
            raise WrongForm(_count(answer, len(given), "number"))
        unit = rounding(answer)

        def gaps(others, given=given) -> list[float]:
            return [off(*one, unit) for one in zip(given, others, each, strict=True)]

        hints = {right: None, **wrong}
        nearest = min(hints, key=lambda others: max(gaps(others)))
        if nearest != right:
            _refuse_half_precision(given, right, each, unit)
        if max(gaps(nearest)) <= 1:
            return hints[nearest]
        close = [gap <= 1 for gap in gaps(right)]
        return _elsewhere(given, right, each, close, gaps) or _partly(close)

    judge.wrong = wrong
    return judge


def off(given: float, right: float, digits: int | None, unit: float = ROUNDING["float32"]) -> float:
    """How far a number is from the right one, where 1 is half a unit of its last digit.

    Besides, rounding may take it as far as four operations in its precision do.
    """
    if digits is None:
        return 0.0 if given == right else math.inf
    # What tends to zero is zero but for rounding; significant digits say nothing of it.
    half = 0.5 * 10.0 ** (_exponent(right) - digits + 1) if right else 1e-6
    return abs(given - right) / (half + 4 * max(unit, 4e-7) * abs(right))


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0


def _refuse_half_precision(given, right, each, unit) -> None:
    """Raise WrongForm if whole numbers are wrong only because their dtype cannot hold them."""
    rows = zip(given, right, each, strict=True)
    near = [
        abs(g - r) <= unit * abs(r) if d is None else off(g, r, d, unit) <= 1 for g, r, d in rows
    ]
    rounded = any(g != r for g, r, d in zip(given, right, each, strict=True) if d is None)
    if unit > ROUNDING["float32"] and all(near) and rounded:
        raise WrongForm("numbers in half precision, which rounds them: count in integers")


def _elsewhere(given, right, each, close, gaps) -> str | None:
    """The hint for numbers that are right in another order, sign, unit or length."""

    def agree(others) -> bool:
        return max(gaps(right, others)) <= 1

    if any(agree(order) for order in permutations(given)):
        return "these are the numbers, but the statement asks for them in another order"
    if agree([-value for value in given]):
        return "the sign is the other way round"
    measured = [digits is not None for digits in each]
    rows = list(zip(given, close, measured, strict=True))
    if agree([v / 100 if of and not near else v for v, near, of in rows]):
        return "that is in percent: give a fraction"
    if agree([1 / v if of and v and not near else v for v, near, of in rows]):
        return "a quotient is upside down: divide the other way"
    off_by = [i for i, near in enumerate(close) if not near]
    if all(measured[i] and _too_early(given[i], right[i], each[i]) for i in off_by):
        return "right as far as it goes, but with too few digits: see how many are asked for"
    if all(measured[i] and _cut(given[i], right[i], each[i]) for i in off_by):
        return "the last digit is cut off rather than rounded: round to the nearest"
    return None


def _too_early(given: float, right: float, digits: int) -> bool:
    """Whether a number is the right one with one or two digits fewer than are asked for."""
    few = range(max(1, digits - 2), digits)
    return any(math.isclose(given, float(f"{right:.{n - 1}e}")) for n in few)


def _cut(given: float, right: float, digits: int) -> bool:
    """Whether a number has the digits of the right one, up to where they end."""
    step = 10.0 ** (_exponent(right) - digits + 1)
    return math.isclose(given, math.trunc(right / step) * step)


def _partly(close: list[bool]) -> str:
    if len(close) < 2 or not any(close):
        return NOT_YET
    names = [ordinal for ordinal, near in zip(ORDINALS, close, strict=False) if near]
    return f"the {rights(names, len(close), 'number')}"


def _count(answer, count: int, thing: str) -> str:
    """What is handed in where another count is asked for."""
    flat = not is_array(answer) or len(answer.shape) == 1
    return counted(count, thing) if flat else kind_of(answer)


def number_first(right: Iterable[float], *, wrong: Mapping[float, str]) -> Judge:
    """The first of several whole numbers, or all of them; mistakes are known of the first."""
    right = tuple(right)
    first = number(right[0], wrong=wrong)
    rest = numbers_in_order(right, wrong={})

    def judge(answer) -> str | None:
        try:
            alone = the_one(answer)
        except WrongForm:
            alone = None
        if alone is not None or not (
            is_array(answer) or isinstance(answer, (Mapping, list, tuple))
        ):
            return first(answer)
        problem = rest(answer)
        return problem and (first(items(answer)[0]) or problem)

    judge.wrong = wrong
    return judge


def measured(count: int, *rules: tuple[Callable[..., bool], str], names: Iterable = ()) -> Judge:
    """Numbers that a run of the reader's own has given, judged by what must hold of them.

    Each rule is a condition on the numbers and the hint for when it does not hold; the first one
    that does not hold is told. What holds but for rounding holds.
    """
    names = tuple(names)

    def judge(answer) -> str | None:
        given = [the_one(answer)] if count == 1 else to_numbers(answer, names)
        if len(given) != count:
            raise WrongForm(_count(answer, len(given), "number"))
        unit = rounding(answer)
        nearby = [[value * (1 + sign * 4 * unit) for value in given] for sign in (-1, 1)]
        for holds, hint in rules:
            if not any(holds(*values) for values in (given, *nearby)):
                return hint
        return None

    judge.rules = rules
    return judge


# ---- Truth values, positions, tables ------------------------------------------------------------


def truths(
    right: Iterable[bool], *, wrong: Mapping[tuple[bool, ...], str], names: Iterable = ()
) -> Judge:
    """A list of booleans."""
    right, names = list(right), tuple(names)

    def judge(answer) -> str | None:
        given = to_truths(answer, names)
        if len(given) != len(right):
            raise WrongForm(_count(answer, len(given), "truth value"))
        if given == right:
            return None
        for candidate, hint in wrong.items():
            if given == list(candidate):
                return hint
        if given == [not value for value in right]:
            return "every one of them is the other way round: read the question once more"
        return NOT_YET

    judge.wrong = wrong
    return judge


def truth_lists(
    right: Iterable[list],
    *,
    wrong: Mapping[tuple, str],
    kind: str = "truth values",
    names: Iterable = (),
) -> Judge:
    """Two lists, of truth values or (`kind="positions"`) of whole numbers."""
    right, names = [list(part) for part in right], tuple(names)
    read = to_truths if kind == "truth values" else to_positions

    def judge(answer) -> str | None:
        found = parts(answer, names)
        if len(found) != len(right):
            length = "" if is_array(answer) else f" of length {len(found)}"
            raise WrongForm(f"{kind_of(answer)}{length}")
        given = [read(part) for part in found]
        for part, wanted in zip(given, right, strict=True):
            if kind == "truth values" and len(part) != len(wanted):
                raise WrongForm(f"a list of {counted(len(part), 'truth value')} in it")
        if given == right:
            return None
        for candidate, hint in wrong.items():
            if given == [list(part) for part in candidate]:
                return hint
        for name, part, wanted in zip(ORDINALS, given, right, strict=False):
            if part == wanted:
                return f"the {rights([name], len(right), 'list')}"
        return NOT_YET

    judge.wrong = wrong
    return judge


def table(
    right: Mapping[str, tuple[float, ...]],
    *,
    wrong: Mapping[tuple[tuple[float, ...], ...], str],
    names: Iterable = (),
    others: Set[str] = frozenset(),
) -> Judge:
    """A dictionary from names to tuples of whole numbers; `wrong` has the rows without names.

    A row may be a dictionary by `names`. Rows of `others` may be there and are not looked at.
    """
    right, names = dict(right), tuple(names)
    keys = list(right)

    def judge(answer) -> str | None:
        if isinstance(answer, Mapping):
            rows = {_size(key): row for key, row in answer.items()}
            if len(rows) != len(answer) or not set(keys) <= set(rows) <= {*keys, *others}:
                raise WrongForm(f"a dictionary with the keys {short(list(answer))}")
        else:
            found = parts(answer)
            if len(found) != len(keys) or not all(isinstance(r, (list, tuple)) for r in found):
                raise WrongForm(kind_of(answer))
            rows = dict(zip(keys, found, strict=True))
        given = {key: tuple(to_numbers(rows[key], names)) for key in keys}
        if given == right:
            return None
        for candidate, hint in wrong.items():
            if tuple(given.values()) == candidate:
                return hint
        if {key: row[::-1] for key, row in given.items()} == right:
            return "the numbers of each pair have changed places"
        good = [key for key in keys if given[key] == right[key]]
        return rights(good, len(keys)) if good else NOT_YET

    judge.wrong = wrong
    return judge


def _size(key) -> str:
    """A name such as "GPT-2 XL" without what all of them have in common."""
    return spelled(key).removeprefix("gpt2").replace("extralarge", "xl")


# ---- Functions and classes ----------------------------------------------------------------------


def function(
    reference: Callable, inputs: Callable[[np.random.Generator], Iterable[tuple]], hints: Callable
) -> Judge:
    """A function, tried on fresh random inputs beside the reference.

    `inputs(rng)` gives tuples of arguments, the simplest first; `hints(arguments, got, wanted)`
    says what the first result that differs looks like.
    """

    def judge(answer) -> str | None:
        if not callable(answer) or isinstance(answer, type):
            raise WrongForm(kind_of(answer))
        for arguments in inputs(np.random.default_rng()):
            wanted = reference(*arguments)
            got = answer(*arguments)
            if got is None:
                return NOTHING
            if not isinstance(got, Set if isinstance(wanted, set) else type(wanted)):
                return f"it returns {kind_of(got)}, and should return {kind_of(wanted)}"
            if got != wanted:
                return hints(arguments, got, wanted)
        return None

    return judge


NOTHING = "it returns nothing: end it with a `return`"


def tried(
    trial: Callable[[Any, Backend, np.random.Generator], str | None], *, classes: bool = False
) -> Judge:
    """A function of either backend (or, if so told, a class), tried on fresh random inputs.

    `trial(answer, backend, rng)` goes from the shape to the mechanism to the full reference, and
    returns the hint for the first thing that fails. An answer is right if it is in one backend.
    """

    def judge(answer) -> str | None:
        if not callable(answer) or (isinstance(answer, type) and not classes):
            raise WrongForm(kind_of(answer))
        problems, errors = [], []
        for backend in candidates(answer):
            try:
                problem = trial(answer, backend, np.random.default_rng())
            except NotYet as hint:
                problem = str(hint)
            except Exception as error:
                errors.append(error)
                continue
            if problem is None:
                return None
            problems.append(problem)
        if problems:
            return problems[0]
        if errors:
            raise errors[0]
        return "a function can be tried only where PyTorch or JAX is installed"

    return judge


def returned(got, backend: Backend, *, finite: bool = True) -> tuple[np.ndarray, float]:
    """What a function returned, in float64, and how coarsely it is rounded.

    Raises:
        NotYet: if it is no array of real numbers, or (`finite`) has NaN or infinity in it.
    """
    array = array_of(got, backend).astype(np.float64)
    if finite and not np.isfinite(array).all():
        raise NotYet(f"it returns {array[~np.isfinite(array)][0]} among its numbers")
    return array, rounding(got)


def array_of(got, backend: Backend) -> np.ndarray:
    """What a function returned, as an array of NumPy; NotYet unless it has real numbers."""
    if got is None:
        raise NotYet(NOTHING)
    try:
        array = backend.numpy(got)
        if array.dtype.kind in "OSU" or array.dtype.kind == "c":
            raise TypeError
        array.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise NotYet(f"it returns {kind_of(got)}, and should return an array of numbers") from None
    return array


def compared(
    got: np.ndarray,
    unit: float,
    wanted: np.ndarray,
    mistakes: Iterable[tuple[np.ndarray, str]] = (),
    *,
    operations: int = 8,
) -> str | None:
    """None if a result is the wanted one, else the hint of the mistake that explains it, or "".

    Args:
        got: the result, and `unit`, how coarsely it is rounded (`returned` gives both).
        wanted: what is right; `mistakes`: what people get instead, with their hints.
        operations: how many roundings in a row may add up. Besides, 1e-5 of the largest entry.

    In half precision a mistake may be no larger than rounding. But it pulls all entries its own
    way, where rounding goes up and down: what is clearly nearer on the whole is meant.
    """

    top = np.abs(wanted).max()

    def near(other) -> bool:
        return bool(np.abs(got - other).max() <= (1e-5 + operations * unit) * np.abs(other).max())

    def distance(other) -> float:
        return float(np.sqrt(np.mean((got - other) ** 2)))

    told_apart = [m for m in mistakes if not np.allclose(m[0], wanted, rtol=0, atol=1e-5 * top)]
    explained = [(distance(other), hint) for other, hint in told_apart if near(other)]
    closest, hint = min(explained, default=(math.inf, ""))
    return None if near(wanted) and distance(wanted) <= closest / 0.9 else hint


def another_shape(got: np.ndarray, wanted: np.ndarray) -> str | None:
    """The hint for a result of another shape than the reference's."""
    if got.shape == wanted.shape:
        return None
    return f"it returns an array of shape {got.shape} where {wanted.shape} is asked for"
