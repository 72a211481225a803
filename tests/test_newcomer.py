"""The run in an environment like Colab's: what it hands to a notebook, and what it refuses."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book/_scripts"))

import newcomer


@pytest.fixture
def start(monkeypatch):
    """Return a function that runs the script; its environment is a dictionary."""
    monkeypatch.setattr(newcomer, "make_environment", lambda folder: Path("python"))
    monkeypatch.setattr(newcomer, "build_wheel", lambda folder: Path("d2lgpt.whl"))
    monkeypatch.setattr(sys, "argv", ["newcomer.py", "01", "02"])

    def start(*installed_by_first_cell, seconds=10, gigabytes=1):
        packages = {"torch": "2.11.0", "jax": "0.7.2", "flax": "0.11.2", "numpy": "2.1.3"}

        def run(*_):
            assert packages.keys().isdisjoint(newcomer.INSTALLED_BY_FIRST_CELL)
            packages.update(dict.fromkeys(installed_by_first_cell, "9.9"))
            return seconds, gigabytes

        def pip(python, command, yes, *names):
            assert command == "uninstall"
            for name in names:
                del packages[name]

        monkeypatch.setattr(newcomer, "run", run)
        monkeypatch.setattr(newcomer, "pip", pip)
        monkeypatch.setattr(newcomer, "versions", lambda python: dict(packages))
        newcomer.main()

    return start


def test_each_notebook_is_reported(start, capsys):
    start("d2lgpt", "d2l")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["01_dummy_gpt.ipynb", "10", "s", "1.0", "GB"],
        ["02_layer_norm.ipynb", "10", "s", "1.0", "GB"],
    ]


@pytest.mark.parametrize(("name", "said"), [("torch", "torch"), ("scipy", "scipy")])
def test_nothing_else_may_change(start, name, said):
    with pytest.raises(SystemExit, match=f"01_dummy_gpt.ipynb: its first cell has changed {said}"):
        start("d2lgpt", name)


@pytest.mark.parametrize("costs", [{"seconds": 301}, {"gigabytes": 8.1}])
def test_too_slow_or_too_large_is_named(start, costs):
    with pytest.raises(SystemExit, match=r"over 300 s or 8 GB: 01_dummy_gpt.ipynb, 02_layer_norm"):
        start(**costs)


def test_the_first_cell_installs_this_checkout(monkeypatch, tmp_path):
    """The copy that runs differs from the notebook in one address."""
    monkeypatch.setattr(newcomer, "RUN_ONE", "import sys; print(2 * 1024**2)")
    notebook = ROOT / "notebooks/01_dummy_gpt.ipynb"
    wheel = tmp_path / "d2lgpt-1.whl"
    _, gigabytes = newcomer.run(Path(sys.executable), notebook, wheel, str(tmp_path))
    assert gigabytes == 2
    original, copy = (json.loads(p.read_text()) for p in (notebook, tmp_path / notebook.name))
    first = "".join(copy["cells"][0]["source"])
    assert json.dumps(str(wheel)) in first and "git+" not in first
    assert copy["cells"][1:] == original["cells"][1:]


def test_a_notebook_that_fails_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(newcomer, "RUN_ONE", "raise SystemExit(3)")
    notebook = ROOT / "notebooks/solutions/01_dummy_gpt.ipynb"
    with pytest.raises(SystemExit, match=r"^notebooks/solutions/01_dummy_gpt.ipynb: failed"):
        newcomer.run(Path(sys.executable), notebook, tmp_path / "a.whl", str(tmp_path))
