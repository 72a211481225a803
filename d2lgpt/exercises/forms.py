"""The forms in which a right answer may come, and the words for what an answer is.

A list, a tuple, an array of any shape, a dictionary, `np.where`'s tuple of arrays: what counts is
which numbers, truth values or positions are in it. Each function here raises `WrongForm` for what
has none of them. It names the answer so that it fits behind "this exercise expects ..., not".
"""

import math
import numbers
import re
import sys
from collections.abc import Iterable, Mapping, Sequence, Set, ValuesView
from decimal import Decimal

import numpy as np

MOST = 100_000  # entries of an answer; a larger array would fill the memory as a list

#: How far rounding takes a number from its value, in relation to it: half of the type's epsilon.
ROUNDING = {"float32": 2**-24, "float16": 2**-11, "bfloat16": 2**-8}


class WrongForm(Exception):
    """The answer is of another kind than the exercise asks for; the message says which it is."""


# ---- Numbers ------------------------------------------------------------------------------------


def to_number(answer) -> float:
    """A number from a number, an array of one number, or a string like "7,087,872".

    Raises:
        WrongForm: for anything else, NaN and infinity included.
    """
    if isinstance(answer, (bool, np.bool_)):
        raise WrongForm("a truth value")
    if isinstance(answer, str):
        value = _read(answer)
    elif isinstance(answer, numbers.Integral):
        value = int(answer)
    elif isinstance(answer, (numbers.Real, Decimal)):
        try:
            value = float(answer)
        except (ValueError, OverflowError):  # a signalling NaN; a fraction of huge numbers
            raise WrongForm(f"the number {short(answer)}") from None
    elif is_array(answer) and hasattr(answer, "item"):
        if math.prod(answer.shape) != 1:
            raise WrongForm(kind_of(answer))
        value = answer.item()
        if is_array(value):  # an object that hands itself out again
            raise WrongForm(kind_of(value))
        return to_number(value)
    else:
        raise WrongForm(kind_of(answer))
    if isinstance(value, int) and abs(value) > sys.float_info.max:
        raise WrongForm("a whole number of more than 300 digits")
    if not math.isfinite(value):
        raise WrongForm(f"{value}, which is no finite number")
    return value


def _read(text: str) -> float:
    """The number that a text is, with commas or blanks between thousands."""
    written = text.strip().replace("−", "-")
    if re.fullmatch(r"[+-]?\d{1,3}(?:[,_ ]\d{3})+(?:\.\d*)?", written):
        written = re.sub("[,_ ]", "", written)
    for read in (int, float):
        try:
            return read(written)
        except ValueError:
            pass
    raise WrongForm(f"the text {short(text)}")


def to_numbers(answer, names: Iterable = ()) -> list[float]:
    """The numbers of an answer, one after the other; those of a dictionary in order of `names`."""
    return [to_number(item) for item in items(answer, names)]


def the_one(answer) -> float:
    """A number, or the only one of a list or a dictionary."""
    if not isinstance(answer, (Mapping, *_SEQUENCES)):
        return to_number(answer)
    found = items(answer)
    if len(found) != 1:
        raise WrongForm(counted(len(found), "number"))
    return to_number(found[0])


def rounding(answer) -> float:
    """How coarsely the numbers of an answer are rounded, in relation to their size.

    Numbers of Python are taken for float32: they may come from a computation in it.
    """
    kind = str(getattr(answer, "dtype", "")).rpartition(".")[2]
    if isinstance(answer, Mapping):
        answer = answer.values()
    if isinstance(answer, _SEQUENCES) and len(answer) <= MOST:
        return max(map(rounding, answer), default=ROUNDING["float32"])
    return ROUNDING.get(kind, ROUNDING["float32"])


# ---- Truth values and positions -----------------------------------------------------------------


def to_truths(answer, names: Iterable = ()) -> list[bool]:
    """The truth values of an answer, one after the other; 1 and 0 are truth values too."""
    found = []
    for item in items(answer, names):
        one = is_array(item) and hasattr(item, "item") and math.prod(item.shape) == 1
        value = item.item() if one else item
        if not isinstance(value, (bool, numbers.Real)) or value not in (0, 1):
            raise WrongForm(f"a list with {short(item)} in it")
        found.append(bool(value))
    return found


def to_positions(answer) -> list[int | float]:
    """Positions in rising order, from a list, a set, a mask, or what `where` and `argwhere` give.

    Where an array has other axes before that of the positions, they have the length 1.
    """
    if isinstance(answer, (Set, range)):
        answer = list(answer)
    vectors = isinstance(answer, (list, tuple)) and answer and all(map(_is_vector, answer))
    if vectors and len({len(part) for part in answer}) == 1:  # one of indices for each axis
        answer = np.stack([np.asarray(listed(part)) for part in answer], axis=-1)
    if is_array(answer) and len(answer.shape) == 2 and not _is_mask(answer):
        rows = np.asarray(listed(answer)).reshape(answer.shape)
        if not rows[:, :-1].any():
            return sorted(to_numbers(rows[:, -1]))
    found = items(answer)
    if found and all(isinstance(item, (bool, np.bool_)) for item in found):
        return [place for place, item in enumerate(found) if item]
    return sorted(to_number(item) for item in found)


def _is_vector(part) -> bool:
    return is_array(part) and len(part.shape) == 1 and not _is_mask(part)


def _is_mask(array) -> bool:
    return "bool" in str(getattr(array, "dtype", ""))


# ---- What an answer consists of -----------------------------------------------------------------

_SEQUENCES = (list, tuple, range, ValuesView)


def parts(answer, names: Iterable = ()) -> list:
    """The parts of an answer: of a list, of a dictionary, or along the first axis of an array."""
    if isinstance(answer, Mapping):
        return in_order(answer, names)
    if is_array(answer) and hasattr(answer, "tolist"):
        if not len(answer.shape):
            raise WrongForm(kind_of(answer))
        return listed(answer)
    if isinstance(answer, _SEQUENCES) and len(answer) <= MOST:
        return list(answer)
    raise WrongForm(kind_of(answer))


def items(answer, names: Iterable = ()) -> list:
    """All that is in an answer, one after the other, also of lists in lists and rows of arrays."""
    found = []

    def collect(part, depth: int) -> None:
        if depth > 9:
            raise WrongForm("lists in lists in lists without end")
        for item in parts(part, names if depth == 0 else ()):
            nested = is_array(item) and len(item.shape) > 0
            if nested or isinstance(item, (Mapping, *_SEQUENCES)):
                collect(item, depth + 1)
            else:
                found.append(item)
            if len(found) > MOST:
                raise WrongForm(f"more than {MOST:,} entries")

    collect(answer, 0)
    return found


def in_order(answer: Mapping, names: Iterable = ()) -> list:
    """The values of a dictionary: in the order of the names if it has these, else in its own."""
    named = {spelled(key): value for key, value in answer.items()}
    wanted = [spelled(name) for name in names]
    if len(named) == len(answer) and wanted and set(named) == set(wanted):
        return [named[name] for name in wanted]
    return list(answer.values())


def spelled(key) -> str:
    """A key without its capitals, blanks and signs: "n_layers" and "N layers" are the same."""
    try:
        return f"{float(str(key)):g}"  # 1.0 and "1" too
    except ValueError:
        return re.sub(r"[\W_]+", "", str(key)).lower()


def is_array(value) -> bool:
    """Whether a value has the shape of an array, of whichever library."""
    return isinstance(getattr(value, "shape", None), tuple) and not isinstance(value, type)


def listed(answer):
    """An array as a list, unless it is one of those that fill the memory as lists."""
    if not hasattr(answer, "tolist"):
        return answer
    if math.prod(getattr(answer, "shape", ())) > MOST:
        raise WrongForm(kind_of(answer))
    return answer.tolist()


# ---- Words --------------------------------------------------------------------------------------


def counted(count: int, thing: str) -> str:
    """So many things, with an s if there are several."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def listed_in_words(words: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def rights(names: Sequence[str], count: int, thing: str = "") -> str:
    """That some of several are right, and what remains to be looked at."""
    rest = "other" if count - len(names) == 1 else "rest"
    verb = "is" if len(names) == 1 else "are"
    plural = "s" * (len(names) != 1)
    which = f"{listed_in_words(names)} {thing}{plural if thing else ''}".strip()
    return f"{which} {verb} right: look at the {rest} again"


ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


def kind_of(value) -> str:
    """What a value is, with its article; a class is a class, and an array has its shape."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return "a class"
    if is_array(value):
        return f"an array of shape {short(tuple(value.shape))}"
    return _of_type(value)


def _of_type(value) -> str:
    name = " ".join(type(value).__name__.split())[:40] or "thing"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def short(value, write=repr) -> str:
    """What a value looks like, on one line and not too long."""
    try:
        text = " ".join(write(value).split())
    except Exception:  # of a number with thousands of digits, or of a class that cannot
        return _of_type(value)
    return text if len(text) <= 40 else text[:37] + "..."
