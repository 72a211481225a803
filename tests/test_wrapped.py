"""Modules that are wrapped: compiled, for several devices, inside another, in a function."""

import functools

import jax
import numpy as np
import optax
import pytest
import torch
from both import BACKENDS, JAX, PYTORCH, randomize, small_config
from flax import nnx

import d2lgpt.jax.gpt
import d2lgpt.torch.gpt
from d2lgpt.checkpoint import write_random_gpt2
from d2lgpt.parity import copy_weights, max_abs_diff

both = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)
CFG = small_config(qkv_bias=True, drop_rate=0.5)
IDS = np.arange(12).reshape(2, 6) % CFG["vocab_size"]


def compiled(module):
    return torch.compile(module, backend="eager")


def parallel(module):
    return torch.nn.DataParallel(module)


def distributed(module):
    if not torch.distributed.is_initialized():
        store = torch.distributed.HashStore()
        torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return torch.nn.parallel.DistributedDataParallel(module)


def both_of_them(module):
    return compiled(parallel(module))


@pytest.fixture(autouse=True)
def no_group_is_left():
    yield
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_random_gpt2(tmp_path_factory.mktemp("gpt2") / "model.safetensors", CFG)


def gpt(backend=PYTORCH):
    return backend.scratch.GPTModel(CFG, **backend.rngs())


wrapped = pytest.mark.parametrize(
    "wrap", [compiled, parallel, distributed, both_of_them], ids=lambda f: f.__name__
)


class Data:
    """One batch, for training and for validation."""

    def __init__(self, backend):
        self.array = backend.array

    def train_dataloader(self):
        return [(self.array(IDS[:, :-1]), self.array(IDS[:, 1:]))]

    val_dataloader = train_dataloader


@wrapped
def test_weights_go_in_and_out_of_a_wrapped_model(wrap):
    a, b = randomize(gpt()), gpt()
    assert copy_weights(a, target := wrap(b)) is target
    assert max_abs_diff(b.trf_blocks[1].att.W_key.weight, a.trf_blocks[1].att.W_key.weight) == 0
    into_jax = copy_weights(wrap(a), nnx.eval_shape(lambda: gpt(JAX)))
    assert max_abs_diff(into_jax.tok_emb.embedding[...], a.tok_emb.weight) == 0
    copy_weights(into_jax, wrap(c := gpt()))
    assert max_abs_diff(c.pos_emb.weight, a.pos_emb.weight) == 0


@wrapped
def test_a_file_is_loaded_into_a_wrapped_model(wrap, path):
    inner = gpt()
    model = wrap(inner)
    assert PYTORCH.root.load_gpt2(model, path) is model
    plain = PYTORCH.root.load_gpt2(gpt(), path)
    assert not inner.training and not model.training
    assert inner.out_head.weight is inner.tok_emb.weight
    with torch.no_grad():
        assert max_abs_diff(model(torch.tensor(IDS)), plain(torch.tensor(IDS))) < 1e-5
    assert PYTORCH.root.count_parameters(model) == PYTORCH.root.count_parameters(plain)


@wrapped
def test_a_wrapped_model_is_trained_and_measured(wrap):
    losses = []
    for change in (wrap, lambda model: model):
        torch.manual_seed(0)
        model = change(d2lgpt.torch.gpt.GPT(50, 16, 2, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = Data(PYTORCH)
        losses.append(PYTORCH.root.train_lm(model, data, optimizer, 3))
        losses[-1].append(PYTORCH.root.val_loss(model, data))
        assert model.training
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


@wrapped
def test_evaluation_mode_of_a_wrapped_model(wrap):
    inner = gpt()
    inner.trf_blocks[0].eval()
    with PYTORCH.root.eval_mode(wrap(inner)):
        assert not any(module.training for module in inner.modules())
    assert inner.training and not inner.trf_blocks[0].training and inner.trf_blocks[1].training


def test_a_model_of_which_a_part_is_compiled(path):
    a, b = randomize(gpt()), gpt()
    b.trf_blocks[1] = compiled(b.trf_blocks[1])
    copy_weights(a, b)
    assert (
        max_abs_diff(b.trf_blocks[1].ff.layers[0].weight, a.trf_blocks[1].ff.layers[0].weight) == 0
    )
    with torch.device("meta"):
        c = gpt()
    c.trf_blocks[1] = compiled(c.trf_blocks[1])
    PYTORCH.root.load_gpt2(compiled(c), path)
    assert not any(p.is_meta for p in c.parameters())


@both
def test_a_model_inside_another(backend, path):
    """Copied and counted it can be; what is in the file has no place in what is around it."""
    sequential = {"pytorch": torch.nn.Sequential, "jax": nnx.Sequential}[backend.name]
    model = sequential(gpt(backend))
    source = torch.nn.Sequential(randomize(gpt()))
    copy_weights(source, model)
    count = backend.root.count_parameters
    inner = model[0] if backend is PYTORCH else model.layers[0]
    assert count(model) == count(inner)
    with pytest.raises(TypeError, match=r"not into a Sequential: hand in the model in it"):
        backend.root.load_gpt2(model, path)


def functions(backend):
    model = gpt(backend)
    if backend is PYTORCH:
        return [torch.compile(model.forward), functools.partial(model), model.forward]
    return [nnx.jit(model), functools.partial(model), jax.jit(lambda x: model(x)), model.__call__]


@both
def test_a_function_is_no_module(backend, path):
    needed = {"pytorch": "a torch.nn.Module", "jax": "an nnx.Module"}[backend.name]
    d2l, data = backend.root, Data(backend)
    for function in functions(backend):
        for use in (
            lambda model: d2l.count_parameters(model),
            lambda model: d2l.eval_mode(model).__enter__(),
            lambda model: d2l.load_gpt2(model, path),
            lambda model: d2l.train_lm(model, data, None, 1),
            lambda model: d2l.val_loss(model, data),
        ):
            with pytest.raises(TypeError, match=f"{needed} is needed, not .*: hand in the module"):
                use(function)
        with pytest.raises(TypeError, match=r"needed, not .*: hand in the module itself, not what"):
            copy_weights(gpt(), function)


@both
def test_a_model_of_the_other_backend(backend, path):
    (other,) = (b for b in BACKENDS if b is not backend)
    words = {
        "pytorch": "a torch.nn.Module is needed, not a GPTModel of the other backend, an nnx",
        "jax": "an nnx.Module is needed, not a GPTModel of the other backend, a torch.nn.Module",
    }[backend.name]
    d2l, model, data = backend.root, gpt(other), Data(backend)
    for use in (
        lambda: d2l.count_parameters(model),
        lambda: d2l.eval_mode(model).__enter__(),
        lambda: d2l.load_gpt2(model, path),
        lambda: d2l.train_lm(model, data, None, 1),
        lambda: d2l.val_loss(model, data),
    ):
        with pytest.raises(TypeError, match=words):
            use()


def test_a_model_of_nnx_inside_another_is_trained():
    model = nnx.Sequential(d2lgpt.jax.gpt.GPT(50, 16, 2, 1, rngs=nnx.Rngs(0)))
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    first, *_, last = JAX.root.train_lm(model, Data(JAX), optimizer, 4)
    assert last < first
