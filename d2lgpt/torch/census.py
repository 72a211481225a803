"""How many parameters a model has, without touching their values."""

from torch import nn

from d2lgpt.parameters import check_module


def count_parameters(model: nn.Module) -> int:
    """The number of trainable numbers in `model`; one that is shared (tied) counts once.

    Works for a model on the meta device too, whose parameters have shapes but no memory.
    """
    check_module(model, nn.Module)
    return sum(parameter.numel() for parameter in model.parameters())
