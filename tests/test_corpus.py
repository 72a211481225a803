"""The text that Part II trains on, and its tokens."""

import math
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import pytest
from facts import assert_fact

from d2lgpt import corpus, files


@pytest.fixture(autouse=True)
def fresh():
    """No test sees the text that another one found."""
    corpus.time_machine.cache_clear()
    yield
    corpus.time_machine.cache_clear()


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_OFFLINE", "1")
    monkeypatch.delenv("D2LGPT_DATA", raising=False)
    monkeypatch.setattr(files, "_cache", lambda: tmp_path / "cache")


@pytest.fixture
def time_machine():
    """The preprocessed text."""
    text, source = corpus.time_machine()
    if not source.startswith("The Time Machine"):
        pytest.skip("The Time Machine is not at hand: name its folder in D2LGPT_DATA")
    return corpus.preprocess(text)


# --- preprocessing -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Time Machine, by H. G. Wells [1898]\n\n\nI\n", "the time machine by h g wells i "),
        (
            "naïve, l’été 42 \u0130s \u017fo \u212a",
            "na ve l t s o ",
        ),  # what is not A to Z is no letter here
        ("a\r\nb\rc", "a b c"),
        ("", ""),
    ],
)
def test_preprocessing(text, expected):
    assert corpus.preprocess(text) == expected


def test_a_byte_order_mark_and_line_ends_change_nothing():
    plain = "The “Time”\nMachine".encode()
    expected = corpus.preprocess(corpus.decode(plain))
    assert expected == "the time machine"
    for file in (b"\xef\xbb\xbf" + plain, plain.replace(b"\n", b"\r\n")):
        assert corpus.preprocess(corpus.decode(file)) == expected


def test_a_c_locale_changes_nothing(monkeypatch, tmp_path):
    """A file with letters that ASCII lacks, read where the system speaks ASCII."""
    text = "\ufeffÉtienne’s “time”".encode()
    (tmp_path / "timemachine.txt").write_bytes(text)
    code = (
        "from d2lgpt import corpus, files; import hashlib, sys\n"
        f"file = files.File('timemachine.txt', hashlib.sha1({text!r}).hexdigest(), '')\n"
        "corpus.TIME_MACHINE = file\n"
        "print(ascii(corpus.time_machine().text))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "D2LGPT_OFFLINE": "1"}
    env = {**os.environ, **plain, "D2LGPT_DATA": str(tmp_path)}
    command = [sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, env=env, check=True).stdout
    assert out.strip() == ascii("Étienne’s “time”")


# --- where it comes from -----------------------------------------------------------------------


def test_the_text_in_its_place(nowhere):
    text, source = corpus.time_machine()
    assert source == "Python's help pages, in place of The Time Machine, which was not found"
    letters = corpus.preprocess(text)
    assert set(letters) == set(" abcdefghijklmnopqrstuvwxyz")
    assert len(letters) > 150_000
    assert corpus.time_machine() is corpus.time_machine()


def test_a_damaged_copy_is_not_taken(nowhere, monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_DATA", str(tmp_path))
    (tmp_path / "timemachine.txt").write_bytes(b"The Time Machine, by H. G. We")
    assert corpus.time_machine().source.startswith("Python's help pages")


# --- The Time Machine, if it is at hand --------------------------------------------------------


def test_its_size(time_machine):
    assert len(time_machine) == 173_428
    assert len(set(time_machine)) == 27
    assert time_machine.startswith("the time machine by h g wells i the time traveller for so")


def entropy(counts: Counter) -> float:
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


def test_published_entropies(time_machine):
    """Of the text that the training windows of the main run cover: 100,000 windows of 128."""
    text = time_machine[: 100_000 + 128]
    assert_fact("entropy.uniform", math.log(28))
    assert_fact("entropy.unigram", entropy(Counter(text)))
    # H(next | current) = H(pair) - H(current)
    assert_fact("entropy.bigram", entropy(Counter(pairwise(text))) - entropy(Counter(text[:-1])))
