"""What the project takes from PyPI's d2l, and that taking it leaves no trace."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
backends = pytest.mark.parametrize("backend", ["torch", "jax"])

BLOCK = """\
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Block())
"""
FOREIGN = {"torchvision", "pandas", "tensorflow", "tensorflow_datasets", "mxnet", "gym"}


def python(code, blocked=(), flags=(), path=""):
    """What code prints in a Python of its own, in which `blocked` packages cannot be imported."""
    code = f"import sys; sys.path[:0] = {[str(path)] if path else []}\n" + textwrap.dedent(code)
    command = [sys.executable, *flags, "-c", BLOCK.format(blocked=list(blocked)) + code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@backends
def test_names_of_d2l_and_our_own(backend):
    from importlib import import_module

    d2l = import_module(f"d2lgpt.{backend}")
    for name in ("plot", "show_heatmaps", "add_to_class", "Vocab", "try_gpu", "HyperParameters"):
        assert getattr(d2l, name) is getattr(sys.modules[f"d2l.{backend}"], name)
        assert name in dir(d2l)
    assert d2l.count_parameters.__module__ == f"d2lgpt.{backend}.census"
    d2l.plot([1, 2], [[1, 2], [2, 3]], "x", legend=["a", "b"])


@backends
def test_other_names_are_ordinary_errors(backend):
    code = f"""
        import d2lgpt.{backend} as ours
        print(hasattr(ours, "_repr_html_"), hasattr(ours, "__wrapped__"), "d2l" in sys.modules)
        from d2lgpt.{backend} import scratch  # a sub-module is no reason to look into d2l
        print("d2l" in sys.modules)
        try:
            ours.no_such_name
        except AttributeError as error:
            print(error, error.name)
    """
    assert python(code).splitlines() == [
        "False False False",
        "False",
        f"module 'd2lgpt.{backend}' has no attribute 'no_such_name' no_such_name",
    ]


@backends
def test_it_leaves_no_trace(backend):
    code = f"""
        import random
        import matplotlib.pyplot as plt
        import numpy, requests, IPython  # have a say in warnings.filters
        import warnings
        import d2lgpt.{backend} as ours

        def state():
            return [dict(plt.rcParams), random.getstate(), str(numpy.random.get_state()),
                    list(warnings.filters), list(sys.meta_path), builtin]

        builtin = __builtins__.__import__
        before = state()
        ours.plot
        assert state() == before
        print(sorted({FOREIGN} & set(sys.modules)))
        print([name for name, m in sys.modules.items() if type(m).__name__ == "_Later"])
        for name in {sorted(FOREIGN)}:
            try:
                __import__(name)
            except ModuleNotFoundError as error:
                print(error.name)
        from d2l import {backend}
        print({backend}.Vocab is ours.Vocab, sys.modules["d2l"].{backend} is {backend})
    """
    lines = python(code, blocked=FOREIGN).splitlines()
    assert lines == ["[]", "[]", *sorted(FOREIGN), "True True"]


def test_what_is_installed_is_used_when_it_is_used(tmp_path):
    (tmp_path / "torchvision.py").write_text("print('loading'); io = 'the real one'; transforms=5")
    code = """
        import d2lgpt.torch as d2l
        d2l.plot
        print("plotted")
        print(d2l.torchvision.io)
        import torchvision
        print(torchvision.transforms)
    """
    lines = python(code, path=tmp_path).splitlines()
    assert lines == ["plotted", "loading", "the real one", "5"]


def test_what_is_not_installed_fails_when_it_is_used():
    code = """
        import d2lgpt.torch as d2l
        for use in (d2l.FashionMNIST, lambda: d2l.torchvision.io, lambda: d2l.pd.read_csv):
            try:
                use()
            except ModuleNotFoundError as error:
                print(error.name)
    """
    assert python(code, blocked=FOREIGN).split() == ["torchvision", "torchvision", "pandas"]


ABSENT = "the package d2l is not installed: pip install --no-deps d2l==1.0.3"


@pytest.mark.parametrize(
    ("backend", "blocked", "sentence"),
    [
        ("torch", "d2l", ABSENT),
        ("jax", "d2l", ABSENT),
        ("torch", "requests", "d2l needs 'requests', which is not installed"),
    ],
)
def test_a_missing_package_is_one_sentence(backend, blocked, sentence):
    code = f"""
        import d2lgpt.{backend} as ours
        for _ in range(2):  # the second time as the first: no half-made module stays behind
            try:
                ours.plot
            except ImportError as error:
                print(error, error.__suppress_context__)
        print(ours.count_parameters.__name__ in dir(ours), "d2l.{backend}" in sys.modules)
    """
    assert python(code, blocked=[blocked]).splitlines() == [
        f"{sentence} True",
        f"{sentence} True",
        "True False",
    ]


def test_a_random_key_under_any_python():
    """d2l says random.randint(0, 1e6): a warning in Python 3.11, an error from 3.12 on."""
    code = "from d2lgpt import jax as d2l; print(d2l.get_key().shape, d2l.get_seed() >= 0)"
    assert python(code, flags=["-W", "error::DeprecationWarning:random"]) == "(2,) True"


def test_the_install_command_is_the_pinned_one():
    from d2lgpt.bridge import INSTALL

    assert INSTALL in (ROOT / "environment.yml").read_text("utf-8")
