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


@pytest.mark.slow
def test_an_injected_fault_turns_the_command_red(tmp_path):
    """The command by which ``make test`` executes notebooks, on the beginning of a real one."""
    nb = deepcopy(PAIRS[0].notebook)
    until = nb.cells.index(code_cells(nb)[1]) + 1  # the cell that loads the magics
    stored = nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=3)
    sources = ["1 + 1", "1 + 2", "1 / 0"]
    cells = [nbformat.v4.new_code_cell(one, execution_count=3, outputs=[stored]) for one in sources]
    nb.cells = [*nb.cells[:until], *cells]
    nbformat.write(nb, tmp_path / "faulty.ipynb")
    command = [sys.executable, TOOL, "test", "--folder", tmp_path]
    test = subprocess.run(command, capture_output=True, text=True)
    assert test.returncode == pytest.ExitCode.TESTS_FAILED
    failed = re.findall(r"^FAILED \S*faulty\.ipynb::Cell (\d)", test.stdout, re.MULTILINE)
    assert failed == ["3", "4"]
    assert "ZeroDivisionError" in test.stdout
    assert "Cell outputs differ" in test.stdout
    assert "2 failed, 3 passed" in test.stdout
