"""Training: both backends take the same steps, and the loss is measured as it is defined."""

import jax
import jax.numpy as jnp
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


class Made:
    """Data whose batches come from where the test says."""

    def __init__(self, loader):
        self.train_dataloader = self.val_dataloader = loader


def pair(backend, rows=2, steps=3):
    ids = np.arange(rows * (steps + 1)).reshape(rows, -1) % 7
    return backend.array(ids[:, :-1]), backend.array(ids[:, 1:])


def refused(backend, data, error, words):
    """Training and measuring on this data are refused, and the model is as it was."""
    model, optimizer, training = make(backend)
    before = [to_numpy(leaf).copy() for leaf in leaves(model)]
    for run, loader in (
        (lambda: training.train_lm(model, data, optimizer, 2), "train_dataloader"),
        (lambda: training.val_loss(model, data), "val_dataloader"),
    ):
        with pytest.raises(error, match=words.format(loader=loader)):
            run()
    assert all((to_numpy(a) == b).all() for a, b in zip(leaves(model), before, strict=True))


def leaves(model):
    if isinstance(model, torch.nn.Module):
        return list(model.parameters())
    return jax.tree.leaves(nnx.state(model, nnx.Param))


@both
def test_a_pass_without_a_batch_is_an_error_and_not_endless(backend):
    used_up = iter([])
    for loader in (list, tuple, lambda: used_up, lambda: (x for x in ())):
        refused(
            backend, Made(loader), ValueError, r"data\.{loader}\(\) gives no batch: it must begin"
        )


@both
def test_a_generator_that_is_used_up_after_some_steps(backend):
    model, optimizer, training = make(backend)
    once = iter([pair(backend)] * 3)
    data = Made(lambda: once)
    with pytest.raises(ValueError, match="a generator that is used up has nothing to give"):
        training.train_lm(model, data, optimizer, 5)
    assert len(training.train_lm(model, Made(lambda: [pair(backend)]), optimizer, 5)) == 5


@both
@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (None, r"data must have a method {loader}, as a TimeMachine has, and a Made has none"),
        (lambda: None, r"data\.{loader}\(\) must give batches \(X, Y\), not a NoneType"),
        (lambda: 7, r"data\.{loader}\(\) must give batches \(X, Y\), not a int"),
        (lambda: [None], r"data\.{loader}\(\) must give pairs \(X, Y\) of .*, not \(NoneType\)"),
        (lambda: ["ab"], r"pairs \(X, Y\) of .*, not \(str\)"),
        (lambda: [{"X": 1, "Y": 2}], r"pairs \(X, Y\) of .*, not \(dict\)"),
        (lambda: [([[1]], [[2]])], r"pairs \(X, Y\) of .*, not \(list, list\)"),
    ],
)
def test_data_that_gives_no_pairs(backend, loader, words):
    refused(backend, Made(loader), TypeError, words)


@both
def test_batches_of_one_array_or_of_three(backend):
    X, Y = pair(backend)
    for batch in (X, (X,), (X, Y, Y)):
        refused(backend, Made(lambda batch=batch: [batch]), TypeError, r"pairs \(X, Y\) of ")


@both
def test_batches_of_the_other_backend(backend):
    (other,) = (b for b in BACKENDS if b is not backend)
    wanted = {"pytorch": r"torch\.Tensor", "jax": r"jax\.Array or numpy\.ndarray"}[backend.name]
    data = Made(lambda: [pair(other)])
    refused(backend, data, TypeError, rf"must give pairs \(X, Y\) of {wanted}, not \(")


def test_batches_of_numpy_are_fine_in_jax():
    model, optimizer, training = make(BACKENDS[1])
    data = Made(lambda: [tuple(map(np.asarray, pair(BACKENDS[1])))])
    assert len(training.train_lm(model, data, optimizer, 2)) == 2
    assert training.val_loss(model, data) > 0


@both
def test_batches_whose_halves_do_not_fit(backend):
    (X, Y), (longer, _) = pair(backend), pair(backend, steps=4)
    for batch, shapes in (
        ((X, longer), r"\(2, 3\) and \(2, 4\)"),
        ((X, Y[:1]), r"\(2, 3\) and \(1, 3\)"),
        ((X[0], Y[0]), r"\(3,\) and \(3,\)"),
    ):
        data = Made(lambda batch=batch: [batch])
        refused(backend, data, ValueError, r"X and Y of the same shape \(B, T\), not " + shapes)


@both
@pytest.mark.parametrize("steps", [-1, 2.0, "2", None, True])
def test_a_number_of_steps_that_is_none(backend, steps):
    model, optimizer, training = make(backend)
    with pytest.raises(ValueError, match="num_steps must be a whole number of at least 0, not "):
        training.train_lm(model, Counting(backend), optimizer, steps)


@both
@pytest.mark.parametrize("scalar", [np.int64, torch.tensor, jnp.int32])
def test_a_number_of_steps_of_any_library(backend, scalar):
    model, optimizer, training = make(backend)
    assert len(training.train_lm(model, Counting(backend), optimizer, scalar(2))) == 2
