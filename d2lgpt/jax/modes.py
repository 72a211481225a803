"""Evaluation mode for the length of a block, and what was before after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from flax import nnx

from d2lgpt.parameters import check_module

# What `model.eval()` and `model.train()` set, on each sub-module that has it.
_FLAGS = ("deterministic", "use_running_average")


@contextmanager
def eval_mode(model: nnx.Module) -> Iterator[nnx.Module]:
    """Switch dropout off inside the `with` block; afterwards each sub-module is as it was."""
    check_module(model, nnx.Module)
    before = [
        (node, flag, getattr(node, flag))
        for _, node in nnx.iter_graph(model)
        for flag in _FLAGS
        if isinstance(node, nnx.Module) and hasattr(node, flag)
    ]
    model.eval()
    try:
        yield model
    finally:
        for module, flag, value in before:
            setattr(module, flag, value)
