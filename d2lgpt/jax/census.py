"""How many parameters a model has, without touching their values."""

import math

import jax
from flax import nnx

from d2lgpt.parameters import check_module


def count_parameters(model: nnx.Module) -> int:
    """The number of trainable numbers in `model`; one that is shared (tied) counts once.

    Works for an abstract model too (`nnx.eval_shape`), whose parameters have shapes but no
    memory. Only `nnx.Param` counts: the random state of dropout is no parameter.
    """
    check_module(model, nnx.Module)
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))
