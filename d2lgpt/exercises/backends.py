"""What trying out an answer needs of a backend: its arrays, and its half of the package.

An answer may come in either backend, and nothing has to say in which: `candidates` guesses it from
the answer. Neither framework is imported before it is needed.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Backend:
    """PyTorch or JAX: how to hand an array in, and how to read what comes back."""

    name: str  # "PyTorch" or "JAX"
    framework: str  # what is imported for it, and what the subpackage is called
    array: Callable[[Any], Any]  # a NumPy array, a list or a number as an array of the backend

    def package(self, module: str):
        """A module of this half of the package: `package("scratch")` is `d2lgpt.torch.scratch`."""
        return import_module(f"d2lgpt.{self.framework}.{module}")

    def numpy(self, array) -> np.ndarray:
        """An array of either backend, or anything that is like one, as a NumPy array."""
        if hasattr(array, "detach"):
            array = array.detach().cpu()
            if "bfloat16" in str(array.dtype):  # which NumPy does not have
                array = array.float()
        return np.asarray(array)

    def rngs(self, seed: int = 0) -> dict:
        """What the constructor of a module takes besides its settings: random streams in JAX."""
        return {} if self is PYTORCH else {"rngs": import_module("flax.nnx").Rngs(seed)}

    def without_values(self, make: Callable[[], Any]):
        """A module made without drawing its weights, where drawing takes long, which is in JAX."""
        return make() if self is PYTORCH else import_module("flax.nnx").eval_shape(make)

    def dry_run(self, module, array) -> None:
        """Call a module for the errors that it may raise; JAX compiles nothing for that."""
        if self is PYTORCH:
            module(array)
        else:
            import_module("flax.nnx").eval_shape(lambda module, array: module(array), module, array)

    def is_module(self, answer) -> bool:
        """Whether an answer is a module of this backend, or a class of them."""
        home = sys.modules.get("torch.nn" if self is PYTORCH else "flax.nnx")
        kind = answer if isinstance(answer, type) else type(answer)
        return home is not None and issubclass(kind, home.Module)


def _torch_array(values):
    # A copy: an answer that writes into its input does not write into the judge's.
    return import_module("torch").as_tensor(np.array(values))


def _jax_array(values):
    return import_module("jax.numpy").asarray(values)


PYTORCH = Backend("PyTorch", "torch", _torch_array)
JAX = Backend("JAX", "jax", _jax_array)


def candidates(answer) -> list[Backend]:
    """The backends in which an answer may be written, the likelier first.

    A module belongs to its framework. A function belongs to the one whose names its module or its
    notebook cell has; if these tell nothing, both are tried.
    """
    installed = [backend for backend in (PYTORCH, JAX) if find_spec(backend.framework)]
    loaded = [backend for backend in installed if backend.framework in sys.modules]
    mine = [backend for backend in loaded if backend.is_module(answer)]
    if mine:
        return mine
    if type(answer).__module__.startswith(("jax", "flax")):  # compiled, or mapped
        return [JAX]
    names = _modules(_plain_function(answer))
    named = [backend for backend in loaded if backend.framework in names]
    return named or installed


def _modules(function) -> set[str]:
    """The parts of the names of the modules that a function uses, or else that it could use."""
    modules = {
        name: getattr(value, "__name__", "").split(".")
        for name, value in getattr(function, "__globals__", {}).items()
        if type(value) is type(sys)
    }
    code = getattr(function, "__code__", None)
    used = [modules[name] for name in modules if code and name in code.co_names]
    return {part for parts in used or modules.values() for part in parts}


def _plain_function(answer):
    """The function inside a partial one, a decorated one, or an object that can be called."""
    for _ in range(9):
        if hasattr(answer, "__globals__"):
            break
        if isinstance(answer, partial):
            answer = answer.func
        else:
            answer = getattr(answer, "__wrapped__", None) or type(answer).__call__
    return answer
