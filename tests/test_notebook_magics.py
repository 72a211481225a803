"""The cell magics %%pytorch and %%jax: a namespace for each backend."""

import re
import traceback
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from d2lgpt import notebook


@pytest.fixture
def run():
    shell = InteractiveShell()
    notebook.load(shell)

    def run(code: str) -> str:
        with capture_output() as captured:
            result = shell.run_cell(code)
        result.raise_error()
        return captured.stdout.strip()

    run.shell = shell
    return run


def test_the_same_name_in_both(run):
    run("%%pytorch\nmodel = 'one'")
    run("%%jax\nmodel = 'other'")
    assert "('one', 'other')" in run("PyTorch.model, JAX.model")
    assert "'one'" in run("%%pytorch\nmodel")
    with pytest.raises(NameError):
        run("model")


def test_shared_names_are_seen_and_followed(run):
    run("cfg = 1")
    run("%%pytorch\ndef read():\n    return cfg")
    run("cfg = 2")
    assert "2" in run("%%pytorch\nread()")
    run("%%jax\ncfg = 3")
    run("cfg = 4")
    assert "3" in run("%%jax\ncfg"), "a backend's own name comes first"
    run("del cfg")
    with pytest.raises(NameError):
        run("%%pytorch\nread()")


def test_the_last_expression_is_shown_unless_silenced(run):
    assert run("%%pytorch\nx = 1\nx").endswith("1")
    assert run("%%pytorch\nx;") == ""
    assert run("%%pytorch\nprint('printed')") == "printed"
    assert run("%%pytorch\nx = 2") == ""


def test_one_backend_looks_into_the_other(run):
    run("%%pytorch\nx = 5")
    assert "6" in run("%%jax\nPyTorch.x + 1")


def test_what_a_failing_cell_defined_before_it_failed_is_there(run):
    with pytest.raises(ZeroDivisionError):
        run("%%pytorch\nbefore = 1\n1 / 0\nafter = 2")
    assert "1" in run("PyTorch.before")
    with pytest.raises(AttributeError, match="no %%pytorch cell has defined 'after'"):
        run("PyTorch.after")


def test_a_syntax_error_is_a_syntax_error(run):
    with pytest.raises(SyntaxError):
        run("%%jax\nx = (")


def test_classes_functions_and_deleted_names(run):
    run("%%pytorch\nimport dataclasses\n@dataclasses.dataclass\nclass A:\n    z: int = 3")
    assert "A(z=3)" in run("%%pytorch\nA()")
    run("%%pytorch\ndel A")
    with pytest.raises(AttributeError):
        run("PyTorch.A")


def test_line_magics_and_help_work_inside(run):
    assert Path.cwd().name in run("%%pytorch\n%pwd")
    run("%%pytorch\n%time y = 7")
    assert "7" in run("PyTorch.y")


def test_loading_again_keeps_what_is_there(run):
    run("%%pytorch\nx = 1")
    notebook.load(run.shell)
    assert "1" in run("PyTorch.x")


def test_arguments_on_the_magic_line_are_an_error(run):
    with pytest.raises(ValueError, match="a line of its own"):
        run("%%pytorch x = 1\ny = 2")


def test_what_is_defined_can_be_listed(run):
    run("%%pytorch\nmodel = 1")
    assert "PyTorch: model" in run("PyTorch")
    assert "model" in run("dir(PyTorch)")


def test_a_name_bound_to_the_very_object_of_the_shared_name_is_the_backends_own(run):
    run("import math\nseed = 1")
    run("%%pytorch\nimport math\nseed = 1")  # small integers and modules exist once
    assert "(1, 3.14" in run("PyTorch.seed, PyTorch.math.pi")
    run("seed = 2")
    assert "1" in run("%%pytorch\nseed")


def test_a_branch_not_taken_binds_nothing(run):
    run("device = 'cpu'")
    run("%%pytorch\nif False:\n    device = 'gpu'")
    run("device = 'tpu'")
    assert "tpu" in run("%%pytorch\ndevice")


def test_a_function_called_from_outside_sees_the_shared_names_of_now(run):
    run("cfg = 1")
    run("%%pytorch\ndef read():\n    return cfg")
    run("cfg = 2")
    assert "2" in run("PyTorch.read()")
    assert "3" in run("cfg = 3\nPyTorch.read()")


def test_any_name_can_be_looked_up(run):
    run("%%pytorch\nrun = 5\nload = 6")
    assert "(5, 6)" in run("PyTorch.run, PyTorch.load")


def test_names_of_a_backend_are_set_in_its_cells_only(run):
    run("%%jax\nmodel = 1")
    with pytest.raises(AttributeError, match="set model in a %%jax cell"):
        run("JAX.model = 2")
    assert "1" in run("JAX.model")


def test_a_cell_may_look_into_its_own_backend(run):
    run("y = 1")
    run("%%pytorch\nmodel = 1")
    assert "(5, 6, 1)" in run("%%pytorch\nx, y = 5, 6\nold = PyTorch.model\nx, y, old")
    assert "(5, 6)" in run("%%pytorch\nx, y")


def test_a_traceback_numbers_the_cell_as_the_notebook_does(run):
    run.shell.run_cell("1", store_history=True)
    with capture_output():
        result = run.shell.run_cell("%%pytorch\n1 / 0", store_history=True)
    frames = traceback.extract_tb(result.error_in_exec.__traceback__)
    numbers = {name for f in frames for name in re.findall(r"ipython-input-(\d+)-", f.filename)}
    assert numbers == {"2"}
