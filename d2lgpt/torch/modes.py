"""Evaluation mode for the length of a block, and what was before after it."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from d2lgpt.parameters import check_module


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[nn.Module]:
    """Switch dropout off inside the `with` block; afterwards each sub-module is as it was."""
    check_module(model, nn.Module)
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        for module, training in before:
            module.training = training
