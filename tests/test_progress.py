"""Progress bars: for persons only."""

import sys

import pytest

from d2lgpt.progress import person_looks, progress_bar


@pytest.fixture
def person(monkeypatch):
    """Somebody at a terminal."""
    monkeypatch.delenv("PYTEST_VERSION", raising=False)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_a_person_sees_a_bar_which_leaves_no_trace(person, capsys):
    assert person_looks()
    assert list(progress_bar(range(3), total=3, mininterval=0)) == [0, 1, 2]
    written = capsys.readouterr().err
    assert "3" in written
    assert written.endswith("\r")
    assert not written.split("\r")[-2].strip()


@pytest.mark.parametrize(("name", "value"), [("TQDM_DISABLE", "1"), ("PYTEST_VERSION", "9")])
def test_stored_outputs_have_none(person, monkeypatch, capsys, name, value):
    monkeypatch.setenv(name, value)
    assert list(progress_bar(iter(range(3)))) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_neither_has_a_log_file(person, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    assert not person_looks()
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert person_looks()
