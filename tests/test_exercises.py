"""Exercises that answer back: right answers, known mistakes, and answers that misbehave."""

import io
import json
import logging
import os
import random
import subprocess
import sys
import threading
import warnings
from contextlib import suppress
from decimal import Decimal

import numpy as np
import pytest

from d2lgpt.exercises import check, clear_progress, desk, hint, progress, record
from d2lgpt.exercises.chapter_01 import _same_tokens
from d2lgpt.exercises.chapter_07 import SIZES
from d2lgpt.exercises.chapter_08 import WINDOWS
from d2lgpt.tokenizer import gpt2_tokenizer


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "folder" / "progress.json"))


# What the worked solutions hand in.
ANSWERS = {
    "1.1": [38_597_376, 786_432, 38_597_376, 77_981_184],
    "1.2": (786_432, 77_981_184),
    "1.3": np.array([True, False, False, False]),
    "1.4": _same_tokens,
    "2.1": 0.00183,
    "2.2b": [[True, True, True], [False, False, False]],
    "3.1": [1.414, 1.129],
    "3.2b": [0.020, 2.3, 43],
    "3.3": [0.501, 0.013],
    "4.1": [2, 0.94],
    "4.2": [25_000, 13],
    "4.3": [0.00020, 0.0038, 0.22, 18],
    "5.1": [4_722_432, 2_360_064],
    "6.1": [False, True, False],
    "6.2": [[0, 1], [0, 1, 2, 3]],
    "7.1": {
        "large": (838_220_800, 773_891_840),
        "medium": (406_212_608, 354_749_440),
        "xl": (1_637_792_000, 1_557_380_800),
    },
    "7.2": [0, 32, 0, 128],
    "7.3": [64, 70],
    "8.1": 1_273_713_408,
    "8.3": [55, 1],
    "8.4": WINDOWS,
    "9.1b": [0.231, 0.0],
    "9.2": [0, 1024, -1280],
    "10.2": [3.3322, 2.8280, 2.2765],
    "12.1a": 7_087_872,
    "12.1b": [787_200, 4_730_624, 0.3165, 0.0015],
    "12.1c": [163_037_184, 0.3124, 0.3102],
    "12.2a": [12, 12_582_912],
    "13.1": [196_608, 377_487_360, 2_516_582_400],
    "13.2": ["twice", "mask", "positions"],
    "13.4b": [131_072, 4],
}


def test_there_is_an_answer_to_each():
    closed = [id for id, exercise in desk.exercises().items() if hasattr(exercise.judge, "wrong")]
    assert closed == [id for id in ANSWERS if id != "1.4"]


@pytest.mark.parametrize("id", ANSWERS)
def test_the_right_answer_is_right(id, capsys):
    verdict = check(id, ANSWERS[id])
    assert verdict
    assert str(verdict) == f"{id}: right."
    assert capsys.readouterr().out == f"{id}: right.\n"
    assert id in record.solved()


def known_mistakes():
    """(id, wrong answer, its hint), read off what the judges were made from."""
    for exercise in desk.exercises().values():
        wrong = getattr(exercise.judge, "wrong", {})
        for answer, text in wrong.items():
            yield exercise.id, answer, text


def handed_in(id, answer):
    if id == "7.1":
        return dict(zip(SIZES, answer, strict=True))
    if not isinstance(answer, tuple):
        return answer
    return answer[0] if len(answer) == 1 else list(answer)


@pytest.mark.parametrize(("id", "answer", "text"), list(known_mistakes()))
def test_each_known_mistake_has_its_own_hint(id, answer, text):
    verdict = check(id, handed_in(id, answer))
    assert not verdict
    assert str(verdict) == f"{id}: not yet: {text}" + "." * (not text.endswith("?"))
    assert record.solved() == []


def test_each_closed_exercise_knows_three_mistakes():
    count = {}
    for id, _, text in known_mistakes():
        count.setdefault(id, set()).add(text)
    assert set(count) == set(ANSWERS) - {"1.4"}
    assert min(map(len, count.values())) >= 3


NO_NUMBERS = ("1.3", "1.4", "2.2b", "6.1", "6.2", "7.1", "8.4", "13.2")
NUMBERS = [id for id in ANSWERS if id not in NO_NUMBERS]


@pytest.mark.parametrize("id", NUMBERS)
def test_a_perturbed_answer_is_rejected(id):
    """Off by one, a factor, a swap, a sign: none of them passes."""
    right = ANSWERS[id]
    answers = [right] if not isinstance(right, (list, tuple)) else list(right)
    for i, value in enumerate(answers):
        whole = isinstance(value, int) and value < 1e9
        for other in {value + 1 if whole else value * 1.1 + 0.1, value * 2 + 1, value * 10 + 3}:
            changed = [*answers[:i], other, *answers[i + 1 :]]
            close = id == "4.2" and i == 0 and abs(other - value) < 600  # two digits are asked for
            if not close:
                assert not check(id, changed if len(changed) > 1 else changed[0]), (i, other)
    if len(answers) > 1 and len(set(answers)) > 1 and id != "12.1a":
        assert "order" in str(check(id, answers[1:] + answers[:1])) or not check(id, answers[::-1])


@pytest.mark.parametrize(
    "answer",
    [
        *("7,087,872", " 7_087_872 ", "7087872", "7 087 872", "7,087,872.0"),
        *(7087872.0, np.float64(7087872), np.array([7087872]), Decimal("7087872")),
    ],
)
def test_forms_of_a_number(answer):
    assert check("12.1a", answer)


def test_a_comma_is_no_decimal_point_and_a_blank_no_glue():
    assert "not the text '0,00183'." in str(check("2.1", "0,00183"))
    assert "not the text '7 0 8'." in str(check("12.1a", "7 0 8"))
    assert check("9.2", ["0", "1,024", "−1,280"])  # with the minus sign of the page


@pytest.mark.parametrize("id", ["1.1", "2.1", "2.2b", "6.2", "7.1", "8.4", "10.1a", "12.3a"])
@pytest.mark.parametrize("shape", [(10**11,), (2, 10**11), (3, 10**11)])
def test_an_array_too_large_for_a_list(id, shape):
    assert "this exercise expects" in str(check(id, np.broadcast_to(np.float32(1), shape)))


def test_one_number_in_percent():
    assert "percent" in str(check("12.1b", [787_200, 4_730_624, 31.65, 0.15]))
    assert "percent" in str(check("3.3", [50.1, 1.3]))
    assert "percent" not in str(check("7.3", [6400, 70]))


@pytest.mark.parametrize("k", [1.5, 2.4])
def test_a_count_of_layers_is_whole(k):
    assert not check("4.1", [k, 0.94])


@pytest.mark.parametrize("id", ["1.1", "4.3", "12.1a"])
def test_huge_numbers_and_numbers_that_equal_everything(id):
    class Chameleon(int):
        __eq__ = __ge__ = __le__ = lambda self, other: True
        __sub__ = __rsub__ = lambda self, other: 0
        __hash__ = int.__hash__

    count = 1 if id == "12.1a" else 4
    for value, text in ((10**400, "more than 300 digits"), (Chameleon(1), "not yet")):
        assert text in str(check(id, [value] * count if count > 1 else value))


def test_numbers_of_the_backends():
    torch, jnp = pytest.importorskip("torch"), pytest.importorskip("jax.numpy")
    assert check("12.1a", torch.tensor(7_087_872))
    assert check("12.1a", jnp.array(7_087_872))
    assert check("4.1", torch.tensor([2.0, 0.94]))
    assert check("1.3", jnp.array([True, False, False, False]))
    assert check("12.1a", [torch.tensor([7_087_872])])
    assert check("6.2", [torch.tensor([1, 0]), {0, 1, 2, 3}])


@pytest.mark.parametrize(
    ("id", "answer", "form"),
    [
        ("12.1a", True, "a truth value"),
        ("12.1a", float("nan"), "nan, which is no finite number"),
        ("12.1a", "seven", "the text 'seven'"),
        ("12.1a", int, "a class"),
        ("1.4", int, "a class"),
        ("2.2a", dict, "a class"),
        ("1.1", [1], "1 number"),
        ("12.1a", object(), "an object"),
        ("1.1", [1, 2], "2 numbers"),
        ("1.1", 5, "an int"),
        ("1.1", np.ones((2, 3)), "an array of shape (2, 3)"),
        ("1.1", {1, 2, 3, 4}, "a set"),
        ("1.3", [2, 0, 0, 0], "a list with 2 in it"),
        ("1.3", [1, 0, 0], "3 truth values"),
        ("2.2b", [[True] * 3], "a list of length 1"),
        ("2.2b", [[True] * 4, [False] * 4], "a list of 4 truth values in it"),
        ("8.1", [1, 2], "2 numbers"),
        ("2.2b", [True, False], "a bool"),
        ("7.1", [1, 2], "a list"),
        ("7.1", {"small": 1}, "a dictionary with the keys ['small']"),
        ("1.4", "same_tokens", "a str"),
    ],
)
def test_another_form_is_one_sentence(id, answer, form):
    text = str(check(id, answer))
    assert text.startswith(f"{id}: this exercise expects ")
    assert text.endswith(f", not {form}.")


def test_not_answered_and_not_there():
    assert "2.1: not answered yet. Hand in one number" in str(check("2.1"))
    assert "There is no exercise '1.9': those of chapter 1 are 1.1, 1.2" in str(check("1.9", 1))
    assert "There is no exercise 'x'" in str(check("x", 1))


# --- Functions, and answers that misbehave ------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda a, b: list(_same_tokens(a, b)), "it returns a list, and should return a set"),
        (lambda a, b: set(a) & set(b), "pieces of text"),
        (lambda a, b: set(gpt2_tokenizer().encode(a + b)), "an intersection is asked for"),
        (lambda a, b: set(), "ids that both texts have are missing"),
        (lambda a, b: None, "it returns nothing"),
        (lambda a: a, "raised an error, TypeError"),
    ],
)
def test_a_wrong_function(answer, text):
    verdict = check("1.4", answer)
    assert not verdict
    assert text in str(verdict)


def raises(error):
    def answer(a, b):
        raise error

    return answer


def test_a_missing_file_is_not_the_answers_fault():
    error = FileNotFoundError("merges.txt was not found:\n- what to do")
    assert str(check("1.4", raises(error))).endswith("A file is missing: merges.txt was not found.")


FINDER = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        return None if name.split(".")[0] in {missing} else super().find_spec(name, *rest)

sys.meta_path[sys.meta_path.index(PathFinder)] = Without
from d2lgpt.exercises import check

check("12.1a", 7_087_872)
check("1.4", lambda a, b: set())
check("2.2a", lambda x: x)
check("3.2a", lambda x: x / (1 + 2.718281828 ** (-1.702 * x)))
check("5.2", len)
"""


@pytest.mark.parametrize(
    ("missing", "texts"),
    [
        ("torch", ["not what comes out", "right.", "the class ThreeRatesGPT"]),
        ("jax flax", ["not what comes out", "right.", "the class ThreeRatesGPT"]),
        ("flax", ["not what comes out", "right.", "the class ThreeRatesGPT"]),
        ("torch jax flax", ["only where PyTorch or JAX is installed"] * 3),
    ],
)
def test_without_a_framework(missing, texts, tmp_path):
    code = FINDER.replace("{missing}", repr(missing.split()))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    assert lines[:2] == [
        "12.1a: right.",
        "1.4: not yet: ids that both texts have are missing: compare sets, whatever the position.",
    ]
    for line, text in zip(lines[2:], texts, strict=True):
        assert text in line


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        ValueError("\n\n\ud800"),
        SystemExit(3),
        GeneratorExit(),
        BaseException(),
        RecursionError("deep"),
        Unspeakable(),
    ],
)
def test_an_error_inside_an_answer_is_part_of_the_sentence(error, capsys):
    assert f"raised an error, {type(error).__name__}" in str(check("1.4", raises(error)))
    assert capsys.readouterr().out.count("\n") == 1


def test_a_screen_without_all_letters_shows_what_it_can(monkeypatch):
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", screen)
    assert not check("12.1a", "τ")
    hint("4.1")
    screen.seek(0)
    assert "not the text '\\u03c4'." in screen.read()


def test_an_answer_that_talks_is_not_shown(capsys, recwarn):
    handler = logging.StreamHandler

    def chatty(a, b):
        nonlocal handler
        print("hello")
        print("hello", file=sys.stderr)
        warnings.warn("hello", stacklevel=1)
        handler = logging.StreamHandler(sys.stderr)  # as PyTorch does when it is imported
        return _same_tokens(a, b)

    assert check("1.4", chatty)
    assert capsys.readouterr() == ("1.4: right.\n", "")
    assert not recwarn.list
    handler.emit(logging.makeLogRecord({"msg": "later"}))
    assert capsys.readouterr().err == "later\n"


def test_an_interrupt_is_the_readers():
    with pytest.raises(KeyboardInterrupt):
        check("1.4", raises(KeyboardInterrupt()))


class Hostile:
    """Whoever looks at it is in for a surprise."""

    shape = (1,)

    def item(self):
        raise RuntimeError("no\nlooking")

    def __eq__(self, other):
        raise RuntimeError

    __hash__ = None


def test_hostile_answers_break_nothing():
    assert str(check("12.1a", Hostile())).endswith("raised an error, RuntimeError: no")
    assert not check("12.1a", (i for i in iter(int, 1)))  # an endless generator


def test_an_endless_function_is_stopped(monkeypatch):
    monkeypatch.setattr(desk, "SECONDS", 0.3)

    def endless(a, b):
        while True:
            with suppress(Exception):
                pass

    assert "ran for over 0.3 seconds" in str(check("1.4", endless))


def test_in_another_thread_there_is_no_limit_and_no_error():
    found = []
    thread = threading.Thread(target=lambda: found.append(check("2.1", 0.00183)))
    thread.start()
    thread.join()
    assert found[0]


def test_global_state_is_as_before():
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")

    def vandal(a, b):
        sys.stdout = None
        warnings.simplefilter("error")
        np.seterr(all="raise")
        np.set_printoptions(precision=1)
        jax.config.update("jax_enable_x64", not jax.config.jax_enable_x64)
        torch.set_default_device("meta")
        torch.use_deterministic_algorithms(True)
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        return _same_tokens(a, b)

    def states():
        generators = random.getstate(), np.random.get_state()[1].tolist()
        settings = sys.stdout, [*warnings.filters], np.geterr(), np.get_printoptions()
        of_torch = torch.get_rng_state().tolist(), torch.are_deterministic_algorithms_enabled()
        return generators, settings, of_torch, torch.get_default_device(), dict(jax.config.values)

    before = states()
    assert check("1.4", vandal)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()
    assert states() == before


# --- Progress and hints --------------------------------------------------------------------------


def test_progress_is_kept_and_cleared(capsys):
    check("2.1", 0.00183)
    check("1.1", ANSWERS["1.1"])
    check("1.1", [1, 2, 3, 4])  # a later slip takes nothing away
    assert record.solved() == ["2.1", "1.1"]
    capsys.readouterr()
    progress()
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["chapter 1: 1 of 4: 1.1", "chapter 2: 1 of 3: 2.1"]
    assert lines[2].startswith("chapter 3: 0 of ")
    clear_progress()
    assert record.solved() == []
    clear_progress()


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"solved": 3}', "\0", "[" * 100_000])
def test_a_damaged_file_is_an_empty_one(damage):
    record.path().parent.mkdir(parents=True)
    record.path().write_text(damage)
    assert record.solved() == []
    assert check("2.1", 0.00183)
    assert json.loads(record.path().read_text()) == {"solved": ["2.1"]}


@pytest.mark.parametrize("place", ["/dev/null/progress.json", "~nobody-of-this-name/p", "folder"])
def test_a_place_that_cannot_be_written_costs_a_remark(place, monkeypatch, tmp_path):
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("D2LGPT_PROGRESS", place)
    text = str(check("2.1", 0.00183))
    assert text.startswith("2.1: right. (It could not be remembered: ")
    assert [*tmp_path.iterdir()] == [tmp_path / "folder"]
    progress()
    clear_progress()


def test_what_is_no_file_is_neither_read_nor_replaced(monkeypatch, tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no such files")
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "pipe"))
    assert str(check("2.1", 0.00183)).endswith("pipe is no file.)")
    clear_progress()
    assert (tmp_path / "pipe").is_fifo()


def test_a_crash_in_the_middle_of_a_write_loses_nothing(monkeypatch):
    check("2.1", 0.00183)

    def crash(self, target):
        raise OSError(5, "the disk is gone")

    monkeypatch.setattr("pathlib.Path.replace", crash)
    assert "could not be remembered" in str(check("1.1", ANSWERS["1.1"]))
    assert record.solved() == ["2.1"]


def test_hints_come_one_at_a_time(capsys):
    for number in (1, 2, 3, 1.5, "x"):
        hint("4.1", number)
    hint("nothing")
    assert capsys.readouterr().out.splitlines() == [
        'There are C(24, k) ways through k layers, each worth 0.1ᵏ. (next: hint("4.1", 2))',
        "All ways together give (1 + 0.1)²⁴.",
        "4.1 has 2 hints.",
        "4.1 has 2 hints.",
        "4.1 has 2 hints.",
        "There is no exercise 'nothing': see progress().",
    ]
