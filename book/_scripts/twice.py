"""A plugin of pytest: nbval runs each cell twice in a row, and both runs must print the same.

Readers run cells again. A cell that goes on from what its own first run has left (a model that it
has trained already, a mode, a count) then prints something else.
"""

import pytest
from nbval.plugin import IPyNbCell


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    result = yield  # the first run, compared with the stored outputs
    # Of an extension that is loaded again, IPython says so.
    if isinstance(item, IPyNbCell) and "%load_ext" not in item.cell.source:
        item.cell.outputs, item.options["check"] = item.test_outputs, True
        item.runtest()
    return result
