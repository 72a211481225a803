"""A plugin of pytest: nbval runs each cell twice in a row, and both runs must print the same.

Readers run cells again. A cell that goes on from what its own first run has left (a mode, a count,
a model that it has changed) then prints something else. Cells that train run once, for they take
most of the time: that they begin anew is a rule, `training_starts_afresh`.
"""

import sys
from pathlib import Path

import pytest
from nbval.plugin import IPyNbCell

sys.path.insert(0, str(Path(__file__).parent))

from notebook_rules import cells_that_train


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    result = yield  # the first run, compared with the stored outputs
    if isinstance(item, IPyNbCell) and not _once(item):
        item.cell.outputs, item.options["check"] = item.test_outputs, True
        item.runtest()
    return result


def _once(item: IPyNbCell) -> bool:
    says_so = "%load_ext" in item.cell.source  # IPython, that the extension is there already
    # What it prints of its own measurements is never the same twice, so nobody compares it.
    unchecked = "nbval-ignore-output" in item.cell.metadata.get("tags", [])
    measures = unchecked and "perf_counter" in item.cell.source
    trains = any(cell is item.cell for cell in cells_that_train(item.parent.nb))
    return says_so or measures or trains
