"""The notebooks as they are committed: every rule holds, and a fault in one is seen."""

import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest

pytest.importorskip("jupytext")
pytest.importorskip("ruff")
ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "book/_scripts/notebooks.py"
sys.path.insert(0, str(TOOL.parent))

from notebook_pair import code_cells
from notebook_rules import RULES

import notebooks

PAIRS = notebooks.find(notebooks.NOTEBOOKS, [])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_rule_holds(pair, rule):
    assert list(rule(pair)) == []


def executed(folder, cells, *options):
    """The result of the command by which ``make test`` executes notebooks, on a real beginning."""
    nb = deepcopy(PAIRS[0].notebook)
    until = nb.cells.index(code_cells(nb)[1]) + 1  # the cell that loads the magics
    del nb.cells[until:]
    for source, shown in cells:
        stored = nbformat.v4.new_output("execute_result", {"text/plain": shown}, execution_count=3)
        nb.cells.append(nbformat.v4.new_code_cell(source, execution_count=3, outputs=[stored]))
    nbformat.write(nb, folder / "written.ipynb")
    command = [sys.executable, TOOL, "test", "--folder", folder, *options]
    test = subprocess.run(command, capture_output=True, text=True)
    failed = re.findall(r"^FAILED \S*written\.ipynb::Cell (\d)", test.stdout, re.MULTILINE)
    return test, failed


@pytest.mark.slow
def test_an_injected_fault_turns_the_command_red(tmp_path):
    test, failed = executed(tmp_path, [("1 + 1", "2"), ("1 + 2", "2"), ("1 / 0", "2")])
    assert test.returncode == pytest.ExitCode.TESTS_FAILED
    assert failed == ["3", "4"]
    assert "ZeroDivisionError" in test.stdout
    assert "Cell outputs differ" in test.stdout
    assert "2 failed, 3 passed" in test.stdout


@pytest.mark.slow
def test_a_cell_that_prints_something_else_when_run_again_is_seen(tmp_path):
    cells = [
        ("n = []; len(n)", "0"),
        ("n.append(1); len(n)", "1"),  # 2 when run again
        ("train_lm = n.append; train_lm(1); len(n)", "3"),  # trains, and so is run once
        ("len(n)", "3"),
    ]
    test, failed = executed(tmp_path, cells, "--twice")
    assert failed == ["3"], test.stdout
    assert "Cell outputs differ" in test.stdout
