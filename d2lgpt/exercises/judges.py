"""Ways to judge an answer: each returns None if it is right, else the hint that fits.

A judge raises `WrongForm` if the answer is not of the kind that the exercise asks for. Whatever
else it raises comes from the answer itself, and is reported as such.
"""

import math
import numbers
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from itertools import permutations
from typing import Any

import numpy as np

from d2lgpt.exercises.backends import Backend, candidates

#: Takes an answer. A judge that knows wrong answers has them, with their hints, as `.wrong`.
Judge = Callable[[Any], str | None]

#: What is said when a wrong answer is none of those that people usually give.
NOT_YET = "not what comes out here: compare each step with the statement"


class WrongForm(Exception):
    """The answer is of another kind than the exercise asks for; the message says which it is."""


#: Significant digits: None for exactly, one number for all, or one entry for each number.
Digits = int | None | tuple[int | None, ...]


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
) -> Judge:
    """Several numbers in the order of the statement, as a list, a tuple or an array."""
    right = tuple(right)
    each = digits if isinstance(digits, tuple) else (digits,) * len(right)
    close = [_close(d) for d in each]

    def agree(given, others) -> bool:
        return all(same(g, o) for same, g, o in zip(close, given, others, strict=True))

    def judge(answer) -> str | None:
        given = [_the_one(answer)] if len(right) == 1 else to_numbers(answer)
        if len(given) != len(right):
            raise WrongForm(counted(len(given), "number"))
        if agree(given, right):
            return None
        for candidate, hint in wrong.items():
            if agree(given, candidate):
                return hint
        if any(agree(order, right) for order in permutations(given)):
            return "these are the numbers, but the statement asks for them in another order"
        if agree([-value for value in given], right):
            return "the sign is the other way round"
        in_hundreds = [
            value / 100 if digits is not None and not same(value, wanted) else value
            for digits, same, value, wanted in zip(each, close, given, right, strict=True)
        ]
        if agree(in_hundreds, right):
            return "that is in percent: give a fraction"
        pairs = enumerate(zip(close, given, right, strict=True))
        matching = [i for i, (same, g, r) in pairs if same(g, r)]
        if matching and len(right) > 1:
            which = ", ".join(f"number {i + 1}" for i in matching)
            return f"{which} of the list is right: look at the rest again"
        return NOT_YET

    judge.wrong = wrong
    return judge


def number_first(right: Iterable[float], *, wrong: Mapping[float, str]) -> Judge:
    """The first of several whole numbers, or all of them; mistakes are known of the first."""
    right = tuple(right)
    first = number(right[0], wrong=wrong)
    rest = numbers_in_order(right, wrong={})

    def judge(answer) -> str | None:
        shape = (len(answer),) if isinstance(answer, (list, tuple)) else None
        if shape is None:
            shape = getattr(answer, "shape", ())
        if shape in ((), (1,)):
            return first(answer)
        problem = rest(answer)
        return problem and (first(_items(answer)[0]) or problem)

    judge.wrong = wrong
    return judge


def truths(right: Iterable[bool], *, wrong: Mapping[tuple[bool, ...], str]) -> Judge:
    """A list of booleans."""
    right = list(right)

    def judge(answer) -> str | None:
        given = to_truths(answer)
        if len(given) != len(right):
            raise WrongForm(counted(len(given), "truth value"))
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
    right: Iterable[list], *, wrong: Mapping[tuple, str], kind: str = "truth values"
) -> Judge:
    """Two lists, of truth values or (`kind="positions"`) of whole numbers."""
    right = [list(part) for part in right]
    read = to_truths if kind == "truth values" else lambda part: sorted(to_numbers(part))

    def judge(answer) -> str | None:
        answer = listed(answer)
        if not isinstance(answer, (list, tuple)) or len(answer) != len(right):
            raise WrongForm(f"{kind_of(answer)} of another form")
        given = [read(list(part) if isinstance(part, set | range) else part) for part in answer]
        if given == right:
            return None
        for candidate, hint in wrong.items():
            if given == [list(part) for part in candidate]:
                return hint
        for i, (part, wanted) in enumerate(zip(given, right, strict=True)):
            if part == wanted:
                return f"list {i + 1} is right: look at the other again"
        return NOT_YET

    judge.wrong = wrong
    return judge


def table(
    right: Mapping[str, tuple[float, ...]], *, wrong: Mapping[tuple[tuple[float, ...], ...], str]
) -> Judge:
    """A dictionary from names to tuples of whole numbers; `wrong` has the rows without names."""

    def judge(answer) -> str | None:
        if not isinstance(answer, Mapping):
            raise WrongForm(kind_of(answer))
        if set(answer) != set(right):
            raise WrongForm(f"a dictionary with the keys {short(list(answer))}")
        given = {name: tuple(to_numbers(answer[name])) for name in right}
        if given == dict(right):
            return None
        for candidate, hint in wrong.items():
            if tuple(given.values()) == candidate:
                return hint
        if {name: row[::-1] for name, row in given.items()} == dict(right):
            return "the numbers of each pair have changed places"
        rights = [name for name in right if given[name] == right[name]]
        return f"{', '.join(rights)} is right: look at the rest again" if rights else NOT_YET

    judge.wrong = wrong
    return judge


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
            if type(got) is not type(wanted):
                return (
                    f"it returns a {type(got).__name__} and should return a {type(wanted).__name__}"
                )
            if got != wanted:
                return hints(arguments, got, wanted)
        return None

    return judge


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


def measured(count: int, *rules: tuple[Callable[..., bool], str]) -> Judge:
    """Numbers that a run of the reader's own has given, judged by what must hold of them.

    Each rule is a condition on the numbers and the hint for when it does not hold; the first one
    that does not hold is told.
    """

    def judge(answer) -> str | None:
        given = [_the_one(answer)] if count == 1 else to_numbers(answer)
        if len(given) != count:
            raise WrongForm(counted(len(given), "number"))
        return next((hint for holds, hint in rules if not holds(*given)), None)

    judge.rules = rules
    return judge


def another_shape(got: np.ndarray, wanted: np.ndarray) -> str | None:
    """The hint for a result of another shape than the reference's."""
    if got.shape == wanted.shape:
        return None
    return f"it returns an array of shape {got.shape} where {wanted.shape} is asked for"


# ---- What an answer may look like ---------------------------------------------------------------


def to_number(answer) -> float:
    """A number from a number, a scalar of any library, or a string like "7,087,872".

    Raises:
        WrongForm: for anything else, NaN and infinity included.
    """
    if isinstance(answer, (bool, np.bool_)):
        raise WrongForm("a truth value")
    if isinstance(answer, str):
        text = answer.strip().replace("−", "-")
        if re.fullmatch(r"[+-]?\d{1,3}(?:[,_ ]\d{3})+(?:\.\d*)?", text):
            text = re.sub("[,_ ]", "", text)
        try:
            value = int(text)
        except ValueError:
            try:
                value = float(text)
            except ValueError:
                raise WrongForm(f"the text {short(answer)}") from None
    elif isinstance(answer, numbers.Integral):
        value = int(answer)
    elif isinstance(answer, (numbers.Real, Decimal)):
        value = float(answer)
    elif hasattr(answer, "shape") and hasattr(answer, "item"):
        if math.prod(answer.shape) != 1:
            raise WrongForm(f"an array of shape {tuple(answer.shape)}")
        return to_number(answer.item())
    else:
        raise WrongForm(kind_of(answer))
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise WrongForm("a whole number of more than 300 digits")
    if not math.isfinite(value):
        raise WrongForm(f"{value}, which is no finite number")
    return value


def _the_one(answer) -> float:
    """A number, or the only number of a list."""
    alone = isinstance(answer, (list, tuple)) and len(answer) == 1
    return to_number(answer[0] if alone else answer)


def to_numbers(answer) -> list[float]:
    """Several numbers from a list, a tuple or a one-dimensional array."""
    return [to_number(item) for item in _items(answer)]


def to_truths(answer) -> list[bool]:
    """Several truth values from a list, a tuple or a one-dimensional array."""
    found = []
    for item in _items(answer):
        one = hasattr(item, "item") and math.prod(getattr(item, "shape", (0,))) == 1
        value = item.item() if one else item
        if not isinstance(value, bool):
            raise WrongForm(f"a list with {short(item)} in it")
        found.append(value)
    return found


def _items(answer) -> list:
    if hasattr(answer, "tolist") and hasattr(answer, "shape"):
        if len(answer.shape) != 1:
            raise WrongForm(f"an array of shape {tuple(answer.shape)}")
        return listed(answer)
    if isinstance(answer, (list, tuple)):
        return list(answer)
    raise WrongForm(kind_of(answer))


def listed(answer):
    """An array as a list, unless it is one of those that fill the memory as lists."""
    if not hasattr(answer, "tolist"):
        return answer
    if math.prod(getattr(answer, "shape", ())) > 100_000:
        raise WrongForm(f"an array of shape {tuple(answer.shape)}")
    return answer.tolist()


def counted(count: int, thing: str) -> str:
    """So many things, with an s if there are several."""
    return f"{count} {thing}{'s' * (count != 1)}"


def kind_of(value) -> str:
    """What a value is, with its article; a class is a class."""
    if isinstance(value, type):
        return "a class"
    if isinstance(value, np.ndarray):
        return "an array"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def short(value) -> str:
    """What a value looks like, on one line and not too long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else text[:37] + "..."


def _close(digits: int | None) -> Callable[[float, float], bool]:
    """Whether a given number is the right one, to so many significant digits; None: exactly."""
    if digits is None:
        return lambda given, right: given == right
    # Half a unit of the last digit, and a little more for who rounded on the way.
    return lambda given, right: abs(given - right) <= 0.6 * 10 ** (_exponent(right) - digits + 1)


def _exponent(value: float) -> int:
    return math.floor(math.log10(abs(value))) if value else 0
