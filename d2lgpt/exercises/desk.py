"""The desk at which answers are handed in: `check`, `hint`, `progress`, `clear_progress`."""

import io
import random
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from d2lgpt.exercises import record
from d2lgpt.exercises.forms import WrongForm, short
from d2lgpt.exercises.judges import Judge

SECONDS = 60  # for one answer; what takes longer is stopped, where the system can do that


@dataclass(frozen=True)
class Exercise:
    """One exercise, or one part of it: what it is called, what it expects, and how it is judged."""

    id: str  # "1.1", or "12.1a" for a part
    title: str
    expects: str  # the form of an answer, in words: "a list of four whole numbers"
    judge: Judge
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What `check` says: true if the answer is right; printed once, as one sentence."""

    right: bool
    text: str

    def __post_init__(self) -> None:
        _say(self.text)

    def _ipython_display_(self) -> None:
        """Nothing: a notebook has printed it already."""

    def __bool__(self) -> bool:
        return self.right

    def __repr__(self) -> str:
        return self.text


def check(id: str = "", *answer, **named) -> Verdict:
    """Say whether an answer is right, and if not, what kind of mistake it looks like.

    Args:
        id: the exercise, "7.1", or a part of one, "12.1a".
        answer: what the statement asks for. None: the exercise is not answered yet. Several
            numbers may come as one list, one by one, or by name: `check("7.3", untied=1, tied=2)`.

    Returns:
        A verdict, true or false, after its sentence has been printed. What the answer itself prints
        is not shown. Random generators and settings are as before, whatever it does. Nothing that
        is handed in makes `check` raise an error; only your own interrupt ends it early.
    """
    exercise = _find(id)
    if exercise is None:
        return Verdict(False, f"There is no exercise {short(id)}: {_known(id)}.")
    answer = _all_of(answer, named)
    if answer is None:
        return Verdict(False, f"{exercise.id}: not answered yet. Hand in {exercise.expects}.")
    try:
        with _silent(), _untouched(), _time_limit():
            problem = exercise.judge(answer)
    except WrongForm as form:
        return Verdict(
            False, f"{exercise.id}: this exercise expects {exercise.expects}, not {form}."
        )
    except _TooLong:
        return Verdict(False, f"{exercise.id}: not yet. The answer ran for over {SECONDS} seconds.")
    except KeyboardInterrupt:
        raise
    except FileNotFoundError as error:  # the answer's, or one that the judge needs
        what = _in_words(error).removeprefix("FileNotFoundError: ").rstrip(":.")
        return Verdict(False, f"{exercise.id}: not yet. A file is missing: {what}.")
    except BaseException as error:  # SystemExit and GeneratorExit do not end the notebook either
        what = _in_words(error)
        return Verdict(False, f"{exercise.id}: not yet. Your answer raised an error, {what}")
    if problem is None:
        remark = record.note(exercise.id)
        return Verdict(True, f"{exercise.id}: right.{remark}")
    stop = "" if problem.endswith("?") else "."
    return Verdict(False, f"{exercise.id}: not yet: {problem}{stop}")


def hint(id: str, number: int = 1) -> None:
    """Print one hint: `hint("7.1")`, then `hint("7.1", 2)`, and so on."""
    exercise = _find(id)
    if exercise is None:
        print(f"There is no exercise {short(id)}: {_known(id)}.")
    elif not isinstance(number, int) or number not in range(1, len(exercise.hints) + 1):
        print(f"{exercise.id} has {len(exercise.hints)} hint{'s' * (len(exercise.hints) != 1)}.")
    else:
        more = f' (next: hint("{exercise.id}", {number + 1}))' * (number < len(exercise.hints))
        _say(exercise.hints[number - 1] + more)


def progress() -> None:
    """Print which exercises are solved, chapter by chapter."""
    solved = record.solved()
    for chapter in dict.fromkeys(id.partition(".")[0] for id in exercises()):
        ids = [id for id in exercises() if id.partition(".")[0] == chapter]
        done = [id for id in ids if id in solved]
        names = f": {', '.join(done)}" if done else ""
        print(f"chapter {chapter}: {len(done)} of {len(ids)}{names}")


def clear_progress() -> None:
    """Forget which exercises are solved."""
    try:
        record.clear()
    except (OSError, RuntimeError) as error:
        print(f"It could not be forgotten: {error}.")


def exercises() -> dict[str, Exercise]:
    """All exercises and parts that can be checked, by id, in the order of the book."""
    chapters = (import_module(f"d2lgpt.exercises.chapter_{n:02d}") for n in range(1, 14))
    return {exercise.id: exercise for chapter in chapters for exercise in chapter.EXERCISES}


def _find(id) -> Exercise | None:
    """The exercise of an id, also if it is written "12.1 A" or as the number 7.1."""
    return exercises().get(_written(id)) if issubclass(type(id), (str, float)) else None


def _written(id) -> str:
    return "".join(short(id, str).split()).lower()


def _all_of(answer: tuple, named: dict):
    """What was handed in: the one thing, or all of several as a tuple or by their names."""
    if set(named) == {"answer"} and not answer:
        return named["answer"]
    if named:
        return named if not answer else (*answer, *named.values())
    return answer[0] if len(answer) == 1 else answer or None


def _say(text: str) -> None:
    """Print a text, also where the screen has not all of its letters."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))


def _known(id) -> str:
    chapter = _written(id).partition(".")[0]
    near = [known for known in exercises() if known.partition(".")[0] == chapter]
    return f"those of chapter {chapter} are {', '.join(near)}" if near else "see progress()"


def _in_words(error: BaseException) -> str:
    """The kind of an error and the first line of its message, or two if a list begins there."""
    try:
        lines = [line.strip() for line in str(error).strip().splitlines()]
    except BaseException:  # whatever the message runs into: it is the answer's
        lines = []
    if lines and lines[0].endswith(":") and not isinstance(error, FileNotFoundError):
        lines[0] = " ".join(lines[:2])
    return ": ".join([type(error).__name__, *lines[:1]])[:200]


class _TooLong(BaseException):
    """Not an Exception: an answer that catches everything shall not catch this."""


@contextmanager
def _time_limit() -> Iterator[None]:
    """Stop what runs too long; only a main thread on Unix can be stopped like this."""
    main = threading.current_thread() is threading.main_thread()
    if not (main and hasattr(signal, "setitimer")):
        yield
        return

    def stop(*_):
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


class _Muted(io.TextIOBase):
    """A stream that shows nothing for a while; a log that has been opened on it works later on."""

    def __init__(self, stream) -> None:
        self.stream, self.muted = stream, True

    def write(self, text: str) -> int:
        return len(text) if self.muted else self.stream.write(text)


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing that an answer prints or warns of is shown: the verdict is one sentence."""
    out, err = _Muted(sys.stdout), _Muted(sys.stderr)
    with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            out.muted = err.muted = False


#: Settings of PyTorch, as the functions that read and write them.
_TORCH_SETTINGS = (
    ("is_grad_enabled", "set_grad_enabled"),
    ("get_default_dtype", "set_default_dtype"),
    ("get_default_device", "set_default_device"),
    ("get_float32_matmul_precision", "set_float32_matmul_precision"),
    ("are_deterministic_algorithms_enabled", "use_deterministic_algorithms"),
    ("get_num_threads", "set_num_threads"),
)


@contextmanager
def _untouched() -> Iterator[None]:
    """Afterwards the global state that answers like to change is as it was."""
    python, numpy = random.getstate(), np.random.get_state()
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None:
        generator = torch.get_rng_state()
        settings = [getattr(torch, read)() for read, _ in _TORCH_SETTINGS]
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    config = {} if jax is None else dict(jax.config.values)
    try:
        with np.errstate(all="ignore"), np.printoptions():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch is not None:
            for (read, write), value in zip(_TORCH_SETTINGS, settings, strict=True):
                if getattr(torch, read)() != value:
                    getattr(torch, write)(value)
            torch.set_rng_state(generator)
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)
        for name, value in config.items():
            if jax.config.values[name] != value:
                jax.config.update(name, value)
