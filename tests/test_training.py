"""Training: both backends take the same steps, and the loss is measured as it is defined."""

import numpy as np
import optax
import pytest
import torch
from both import BACKENDS, PYTORCH, fresh_compilations, to_numpy
from flax import nnx

from d2lgpt.jax import gpt as jax_gpt
from d2lgpt.jax import training as jax_training
from d2lgpt.parity import copy_weights
from d2lgpt.torch import gpt as torch_gpt
from d2lgpt.torch import training as torch_training

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
SHAPE = {"num_hiddens": 16, "num_heads": 2, "num_blks": 2}


class Counting:
    """Sequences that count upwards modulo 7: easy to learn, and the same in both backends."""

    def __init__(self, backend, sizes=(8, 8, 8), steps=6):
        self.array, self.sizes, self.steps, self.passes = backend.array, sizes, steps, 0

    def windows(self, size, seed):
        starts = np.random.default_rng(seed).integers(7, size=(size, 1))
        return (starts + np.arange(self.steps + 1)) % 7

    def train_dataloader(self):
        self.passes += 1
        for i, size in enumerate(self.sizes):
            rows = self.windows(size, seed=100 * self.passes + i)
            yield self.array(rows[:, :-1]), self.array(rows[:, 1:])

    def val_dataloader(self):
        for i, size in enumerate((4, 4, 1)):
            rows = self.windows(size, seed=i)
            yield self.array(rows[:, :-1]), self.array(rows[:, 1:])


def make(backend, rate=1e-2, **options):
    """A model, its optimizer (AdamW without decay) and the training module of a backend."""
    if backend is PYTORCH:
        torch.manual_seed(0)
        model = torch_gpt.GPT(7, **SHAPE, **options)
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0)
        return model, optimizer, torch_training
    model = jax_gpt.GPT(7, **SHAPE, **options, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(rate, weight_decay=0), wrt=nnx.Param)
    return model, optimizer, jax_training


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
def test_same_weights_and_batches_give_the_same_curve(pre_norm):
    one, other = (make(backend, 1e-3, pre_norm=pre_norm) for backend in BACKENDS)
    copy_weights(one[0], other[0])
    curves = [
        training.train_lm(model, Counting(backend), optimizer, 20)
        for backend, (model, optimizer, training) in zip(BACKENDS, (one, other), strict=True)
    ]
    assert curves[0][-1] < curves[0][0] - 0.1, "there is something to agree on"
    np.testing.assert_allclose(*curves, atol=1e-4)


@both
def test_it_learns_and_says_one_loss_a_step(backend):
    model, optimizer, training = make(backend)
    data = Counting(backend)
    before = training.val_loss(model, data)
    losses = training.train_lm(model, data, optimizer, 40)
    assert len(losses) == 40 and all(isinstance(loss, float) for loss in losses)
    assert data.passes == 14  # three batches a pass
    assert before == pytest.approx(np.log(7), abs=0.2)
    assert training.val_loss(model, data) < 0.7 < before
    assert training.train_lm(model, data, optimizer, 0) == []


@both
def test_validation_is_a_mean_over_tokens_with_dropout_off(backend):
    model, _, training = make(backend, dropout=0.5)
    model.train()
    data = Counting(backend)
    got = training.val_loss(model, data)
    assert got == training.val_loss(model, data)
    flag = model.blks[0].dropout.training if backend is PYTORCH else None
    assert flag in (True, None)
    if backend is not PYTORCH:
        assert not model.blks.layers[0].dropout.deterministic
    model.eval()
    total, count = 0.0, 0
    for X, Y in data.val_dataloader():
        logits = to_numpy(model(X)).astype("float64")
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        total -= np.take_along_axis(logits, to_numpy(Y)[..., None], -1).sum()
        count += to_numpy(Y).size
    assert got == pytest.approx(total / count, rel=1e-5)


@both
def test_dropout_draws_a_new_mask_at_each_step(backend):
    """At a learning rate of 0 the weights stay, so only dropout can change the loss of a batch."""
    model, optimizer, training = make(backend, rate=0.0, dropout=0.5)
    data = Counting(backend, sizes=(8,))
    data.windows = lambda size, seed: Counting.windows(data, size, 0)  # the same batch each time
    first, second = training.train_lm(model, data, optimizer, 2)
    assert first != second


def test_a_training_step_compiles_once():
    model, optimizer, training = make(BACKENDS[1])
    data = Counting(BACKENDS[1])
    training.train_lm(model, data, optimizer, 2)
    assert (
        fresh_compilations(
            lambda: training.train_step(model, optimizer, *next(data.train_dataloader()))
        )
        == 0
    )


def test_default_initial_weights_differ_by_the_root_of_three():
    """Why the two published curves of chapter 10 differ; the token tables are drawn alike."""
    (one, *_), (other, *_) = (make(backend) for backend in BACKENDS)
    for ours, theirs in (("attention", "W_qkv"), ("attention", "W_o"), ("ffn", "W_1")):
        linear = getattr(getattr(one.blks[0], ours), theirs)
        kernel = getattr(getattr(other.blks.layers[0], ours), theirs).kernel[...]
        inputs = linear.in_features
        assert linear.weight.std().item() == pytest.approx((3 * inputs) ** -0.5, rel=0.1)
        assert linear.weight.abs().max().item() <= inputs**-0.5
        assert kernel.std().item() == pytest.approx(inputs**-0.5, rel=0.1)
    assert one.token_emb.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert other.token_emb.embedding[...].std().item() == pytest.approx(0.02, rel=0.2)
