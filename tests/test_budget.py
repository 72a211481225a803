"""The two training budgets."""

import sys
from types import SimpleNamespace as Fake

import pytest

from d2lgpt.budget import budget, training_steps

CPU = {
    "torch": Fake(cuda=Fake(is_available=lambda: False)),
    "jax": Fake(default_backend=lambda: "cpu"),
}
GPU = {
    "torch": Fake(cuda=Fake(is_available=lambda: True)),
    "jax": Fake(default_backend=lambda: "gpu"),
}


@pytest.fixture(autouse=True)
def no_wish(monkeypatch):
    monkeypatch.delenv("D2LGPT_BUDGET", raising=False)


@pytest.mark.parametrize(
    ("modules", "expected"),
    [
        ({}, "quick"),
        (CPU, "quick"),
        (GPU, "full"),
        ({"torch": GPU["torch"]}, "full"),
        ({"jax": GPU["jax"]}, "full"),
        ({"torch": GPU["torch"], "jax": CPU["jax"]}, "quick"),  # the slowest one decides
    ],
)
def test_the_machine_decides(monkeypatch, modules, expected):
    for name in ("torch", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        if name in modules:
            monkeypatch.setitem(sys.modules, name, modules[name])
    assert budget() == expected


def test_the_reader_decides(monkeypatch, capsys):
    monkeypatch.setenv("D2LGPT_BUDGET", "full")
    assert training_steps(full=2000, quick=60) == 2000
    monkeypatch.setenv("D2LGPT_BUDGET", "quick")
    assert training_steps(full=2000, quick=60) == 60
    assert capsys.readouterr().out == "full budget: 2,000 steps\nquick budget: 60 of 2,000 steps\n"


def test_a_wish_that_is_none(monkeypatch):
    monkeypatch.setenv("D2LGPT_BUDGET", "huge")
    with pytest.raises(ValueError, match="D2LGPT_BUDGET must be one of 'quick', 'full', not 'hu"):
        budget()


@pytest.mark.parametrize(("full", "quick"), [(0, 0), (10, 0), (10, 11), (2.5, 1), (True, 1)])
def test_steps_that_are_none(full, quick):
    with pytest.raises(ValueError, match=r"full|quick"):
        training_steps(full, quick)
