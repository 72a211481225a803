"""Training a language model, and measuring it on text that it has not seen."""

from itertools import chain, islice, repeat

import torch
from torch import nn
from torch.nn import functional as F

from d2lgpt.config import check_whole
from d2lgpt.corpus import one_pass
from d2lgpt.parameters import check_module
from d2lgpt.progress import progress_bar
from d2lgpt.torch.modes import eval_mode


def train_lm(
    model: nn.Module, data, optimizer: torch.optim.Optimizer, num_steps: int
) -> list[float]:
    """Take `num_steps` optimizer steps on the training batches of `data`, pass after pass.

    Args:
        model: token ids (B, T) -> logits (B, T, vocabulary). It is left in training mode.
        data: `data.train_dataloader()` gives batches (X, Y) of ids, both (B, T).
        optimizer: a `torch.optim` optimizer of the model's parameters.
        num_steps: how many steps; a smaller last batch of a pass counts as one.

    Returns:
        The mean cross-entropy per token (nats) of each step's batch, before the step.

    Raises:
        ValueError: if a pass over the data brings no batch, for X and Y of different shapes, and
            for a number of steps that is none.
        TypeError: for data without such batches, and for a model that is no module.
    """
    check_module(model, nn.Module)
    model.train()
    device = next(model.parameters()).device
    losses = []
    for X, Y in progress_bar(batches(data, num_steps), total=num_steps):
        logits = model(X.to(device))
        loss = F.cross_entropy(logits.flatten(0, 1), Y.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())  # stays on the device: nobody waits for it here
    return torch.stack(losses).tolist() if losses else []


def val_loss(model: nn.Module, data) -> float:
    """Mean cross-entropy per token (nats) on the validation batches of `data`.

    Dropout is off meanwhile, and each sub-module is afterwards as it was. A smaller last batch
    counts by its size.

    Raises:
        ValueError, TypeError: as `train_lm` does, of `data.val_dataloader()`.
    """
    total, count = 0.0, 0
    with eval_mode(model), torch.no_grad():
        device = next(model.parameters()).device
        for X, Y in one_pass(data, "val_dataloader", torch.Tensor):
            logits = model(X.to(device))
            loss = F.cross_entropy(logits.flatten(0, 1), Y.to(device).flatten(), reduction="sum")
            total, count = total + loss, count + Y.numel()
    return float(total) / count


def batches(data, num_steps: int):
    """The first `num_steps` training batches, in as many passes over the data as it takes."""
    passes = (one_pass(data, "train_dataloader", torch.Tensor) for _ in repeat(None))
    return islice(chain.from_iterable(passes), check_whole("num_steps", num_steps, least=0))
