"""Models without memory for their weights: to count, to compare shapes, to load into."""

from collections.abc import Callable
from unittest import mock

import jax
from flax import nnx


def abstract_model(make: Callable[[], nnx.Module]) -> nnx.Module:
    """The model that `make()` builds, abstract: its parameters have shapes but no memory.

    Nothing is drawn. `copy_weights` and `load_gpt2` give such a model its weights.
    """
    # Flax asks each traced random counter where it is sharded. It is nowhere, and JAX 0.10 walks
    # through everything traced so far to say so: 10 seconds for GPT-2 XL, 1 with a short answer.
    with mock.patch.object(jax.core.Tracer, "sharding", property(_nowhere)):
        return nnx.eval_shape(make)


def _nowhere(tracer):
    raise AttributeError("a traced array is on no device yet")
