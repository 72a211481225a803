"""Models without memory for their weights: to count, to compare shapes, to load into."""

from collections.abc import Callable

import torch
from torch import nn


def abstract_model(make: Callable[[], nn.Module]) -> nn.Module:
    """The model that `make()` builds, abstract: its parameters have shapes but no memory.

    Nothing is drawn. `copy_weights` and `load_gpt2` give such a model its weights.
    """
    with torch.device("meta"):
        return make()
