"""One name for each thing that tests need of a backend, so that a test is written once."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.torch
import torch
from flax import nnx

import d2lgpt.jax.scratch
import d2lgpt.torch.scratch
from d2lgpt import jax as d2lgpt_jax
from d2lgpt import torch as d2lgpt_torch
from d2lgpt.config import gpt2_config
from d2lgpt.parity import copy_weights

PYTORCH = SimpleNamespace(
    name="pytorch",
    scratch=d2lgpt.torch.scratch,
    root=d2lgpt_torch,
    rngs=dict,  # modules take no random stream
    array=torch.as_tensor,
    Linear=lambda m, n: torch.nn.Linear(m, n),
    abstract=lambda make: _on_meta(make),
)
JAX = SimpleNamespace(
    name="jax",
    scratch=d2lgpt.jax.scratch,
    root=d2lgpt_jax,
    rngs=lambda: {"rngs": nnx.Rngs(0)},
    array=jnp.asarray,
    Linear=lambda m, n: nnx.Linear(m, n, rngs=nnx.Rngs(0)),
    abstract=nnx.eval_shape,
)
BACKENDS = [PYTORCH, JAX]


def _on_meta(make):
    with torch.device("meta"):
        return make()


def to_numpy(array) -> np.ndarray:
    return array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


def small_config(**overrides) -> dict:
    """A GPT-2 in miniature: quick to make, with all parts."""
    shape = {"vocab_size": 50, "context_length": 12, "emb_dim": 24, "n_heads": 3, "n_layers": 2}
    return gpt2_config("small", **{**shape, **overrides})


def randomize(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Random parameters everywhere: a scale of ones or a shift of zeros would hide a mistake."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return module


def twins(name: str, *args, modules=(d2lgpt.torch.scratch, d2lgpt.jax.scratch), **kwargs):
    """The class `name` of both backends with the same random weights, in evaluation mode."""
    torch_class, jax_class = (getattr(module, name) for module in modules)
    a = randomize(torch_class(*args, **kwargs)).eval()
    # Abstract at first: to draw weights that are overwritten, JAX would compile for each shape.
    b = nnx.eval_shape(lambda: jax_class(*args, **kwargs, rngs=nnx.Rngs(0)))
    copy_weights(a, b).eval()
    return a, b


#: Calls a module of NNX as one program: for a shape that is used once, that is compiled faster.
in_one_go = nnx.jit(lambda module, x: module(x))


def fresh_compilations(run) -> int:
    """How many times JAX compiles something while `run()` is at work."""
    count = 0

    def listen(event: str, duration: float, **kwargs) -> None:
        nonlocal count
        count += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run()
    finally:
        jax.monitoring.clear_event_listeners()
    return count


def judge_of(cfg: dict, path):
    """Hugging Face's GPT-2; its own code gives each tensor of the file its place."""
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=cfg["vocab_size"],
        n_positions=cfg["context_length"],
        n_embd=cfg["emb_dim"],
        n_layer=cfg["n_layers"],
        n_head=cfg["n_heads"],
        bos_token_id=None,
        eos_token_id=None,
    )
    tensors = {name: x.float() for name, x in safetensors.torch.load_file(path).items()}
    model = transformers.GPT2LMHeadModel.from_pretrained(None, config=config, state_dict=tensors)
    return model.eval()
