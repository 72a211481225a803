"""Training a language model, and measuring it on text that it has not seen."""

from functools import partial
from itertools import chain, islice, repeat

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from d2lgpt.config import check_whole
from d2lgpt.corpus import one_pass
from d2lgpt.jax.modes import eval_mode
from d2lgpt.parameters import check_module
from d2lgpt.progress import progress_bar


def train_lm(model: nnx.Module, data, optimizer: nnx.Optimizer, num_steps: int) -> list[float]:
    """Take `num_steps` optimizer steps on the training batches of `data`, pass after pass.

    Args:
        model: token ids (B, T) -> logits (B, T, vocabulary). It is left in training mode.
        data: `data.train_dataloader()` gives batches (X, Y) of ids, both (B, T).
        optimizer: `nnx.Optimizer(model, tx, wrt=nnx.Param)` with an optax transformation `tx`.
        num_steps: how many steps.

    Returns:
        The mean cross-entropy per token (nats) of each step's batch, before the step.

    Raises:
        ValueError: if a pass over the data brings no batch, for X and Y of different shapes, and
            for a number of steps that is none.
        TypeError: for data without such batches, and for a model that is no module.
    """
    check_module(model, nnx.Module)
    model.train()
    losses = []
    for X, Y in progress_bar(batches(data, num_steps), total=num_steps):
        losses.append(train_step(model, optimizer, X, Y))  # stays on the device
    return jnp.stack(losses).tolist() if losses else []


@nnx.jit
def train_step(model: nnx.Module, optimizer: nnx.Optimizer, X: jax.Array, Y: jax.Array):
    """One step; the model is an argument, so that its new state comes back out of the trace."""

    def loss_of(model):
        return optax.softmax_cross_entropy_with_integer_labels(model(X), Y).mean()

    loss, grads = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, grads)
    return loss


def val_loss(model: nnx.Module, data) -> float:
    """Mean cross-entropy per token (nats) on the validation batches of `data`.

    Dropout is off meanwhile, and each sub-module is afterwards as it was. A smaller last batch
    counts by its size.

    Raises:
        ValueError, TypeError: as `train_lm` does, of `data.val_dataloader()`.
    """
    total, count = 0.0, 0
    with eval_mode(model):
        graphdef, state = nnx.split(model)
    for X, Y in one_pass(data, "val_dataloader", jax.Array, np.ndarray):
        total, count = total + summed_loss(graphdef, state, X, Y), count + Y.size
    return float(total) / count


@partial(jax.jit, static_argnames="graphdef")
def summed_loss(graphdef: nnx.GraphDef, state: nnx.State, X: jax.Array, Y: jax.Array):
    """The cross-entropy of a batch, summed over its tokens."""
    logits = nnx.merge(graphdef, state)(X)
    return optax.softmax_cross_entropy_with_integer_labels(logits, Y).sum()


def batches(data, num_steps: int):
    """The first `num_steps` training batches, in as many passes over the data as it takes."""
    passes = (one_pass(data, "train_dataloader", jax.Array, np.ndarray) for _ in repeat(None))
    return islice(chain.from_iterable(passes), check_whole("num_steps", num_steps, least=0))
