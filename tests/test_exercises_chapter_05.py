"""Chapter 5: a GPT with three dropout rates, and each way to mix them up."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from both import JAX, PYTORCH, randomize
from flax import nnx
from torch import nn

from d2lgpt.exercises import check
from d2lgpt.exercises.chapter_05 import EMBEDDINGS, SMALL, WEIGHTS, _logits, _shapes
from d2lgpt.parameters import parameters


@pytest.fixture(autouse=True)
def own_progress(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))


RIGHT = SimpleNamespace(emb="emb", attn="attn", shortcut="shortcut", change=lambda cfg: cfg)


def three_rates_in_torch(**changes):
    """The class, shorter than a reader would write it; `changes` put a mistake in."""
    to = SimpleNamespace(**{**vars(RIGHT), "forward": None, "finish": None, **changes})
    scratch = PYTORCH.scratch

    def rate(cfg, name):
        return cfg[f"drop_rate_{name}"] if name else 0.0

    class Block(scratch.TransformerBlock):
        def __init__(self, cfg):
            super().__init__(cfg["plain"] | {"drop_rate": rate(cfg, to.attn)})
            self.drop_shortcut = nn.Dropout(rate(cfg, to.shortcut))

        forward = to.forward or scratch.TransformerBlock.forward

    class ThreeRatesGPT(scratch.DummyGPTModel):
        def __init__(self, cfg):
            nn.Module.__init__(self)
            cfg = to.change(cfg)
            plain = {name: value for name, value in cfg.items() if "drop_rate" not in name}
            cfg = cfg | {"plain": plain}
            self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
            self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
            self.drop_emb = nn.Dropout(rate(cfg, to.emb))
            self.trf_blocks = nn.Sequential(*[Block(cfg) for _ in range(cfg["n_layers"])])
            self.final_norm = scratch.LayerNorm(cfg["emb_dim"])
            self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)
            if to.finish:
                to.finish(self, cfg)

    return ThreeRatesGPT


def three_rates_in_jax(emb="emb", attn="attn", shortcut="shortcut", keep=None):
    scratch = JAX.scratch

    class Block(scratch.TransformerBlock):
        def __init__(self, cfg, *, rngs):
            plain = {name: value for name, value in cfg.items() if "drop_rate" not in name}
            super().__init__(plain | {"drop_rate": cfg[f"drop_rate_{attn}"]}, rngs=rngs)
            self.drop_shortcut = nnx.Dropout(cfg[f"drop_rate_{shortcut}"], rngs=rngs)

    class ThreeRatesGPT(scratch.DummyGPTModel):
        def __init__(self, cfg, *, rngs):
            self.tok_emb = nnx.Embed(cfg["vocab_size"], cfg["emb_dim"], rngs=rngs)
            self.pos_emb = nnx.Embed(cfg["context_length"], cfg["emb_dim"], rngs=rngs)
            self.drop_emb = nnx.Dropout(cfg[f"drop_rate_{emb}"], rngs=None if keep else rngs)
            self.trf_blocks = nnx.Sequential(
                *[Block(cfg, rngs=rngs) for _ in range(cfg["n_layers"])]
            )
            self.final_norm = scratch.LayerNorm(cfg["emb_dim"])
            self.out_head = nnx.Linear(cfg["emb_dim"], cfg["vocab_size"], use_bias=False, rngs=rngs)

    return ThreeRatesGPT


def test_the_reference_is_the_model_of_the_book():
    model = randomize(PYTORCH.scratch.GPTModel(SMALL | {"drop_rate": 0.0}))
    weights = {}
    for parameter in parameters(model):
        weights |= dict.fromkeys(parameter.names, parameter.value.detach().numpy())
    assert {name: value.shape for name, value in weights.items()} == _shapes()
    ids = np.random.default_rng(0).integers(0, 5, size=(3, 4))
    np.testing.assert_allclose(_logits(weights, ids), model(torch.tensor(ids)).detach(), atol=1e-4)
    without = _logits(weights, ids, {EMBEDDINGS, WEIGHTS})
    np.testing.assert_allclose(without, np.broadcast_to(without[:1, :1], without.shape), atol=1e-5)


@pytest.mark.parametrize("answer", [three_rates_in_torch(), three_rates_in_jax()])
def test_the_right_answer(answer):
    assert check("5.2", answer)


@pytest.mark.slow
def test_a_model_that_keeps_a_buffer_is_right_too():
    """JAX cannot make such a model without values; it is then made in the usual way."""

    class WithBuffer(three_rates_in_jax()):
        def __init__(self, cfg, *, rngs):
            super().__init__(cfg, rngs=rngs)
            self.positions = nnx.Variable(jnp.arange(cfg["context_length"]))

    assert check("5.2", WithBuffer)


def no_norm(self, x):
    x = x + self.drop_shortcut(self.att(x))
    return x + self.drop_shortcut(self.ff(self.norm2(x)))


def one_dropout(self, x):
    x = x + self.drop_shortcut(self.att(self.norm1(x)))
    return x + self.ff(self.norm2(x))


def dropout_of_all(self, x):
    x = x + self.att(self.norm1(x))
    return self.drop_shortcut(x + self.ff(self.norm2(x)))


def always(self, x):
    x = x + nn.functional.dropout(self.att(self.norm1(x)), self.drop_shortcut.p)
    return x + self.drop_shortcut(self.ff(self.norm2(x)))


def set_norm(model, cfg):
    model.final_norm = PYTORCH.scratch.DummyLayerNorm(cfg["emb_dim"])


def set_blocks(model, cfg):
    model.trf_blocks = nn.Sequential(PYTORCH.scratch.DummyTransformerBlock(cfg))


def set_head(model, cfg):
    model.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"])


def set_positions(model, cfg):
    model.pos_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])


def rename(model, cfg):
    model.norm, _ = model.final_norm, setattr(model, "final_norm", nn.LayerNorm(cfg["emb_dim"]))


def half(model, cfg):
    model.drop_emb = nn.Dropout(0.5)


def plain_config(cfg):
    return PYTORCH.scratch.check_config(cfg)


MISTAKES = [
    ({"emb": None}, "`drop_rate_emb` is ignored"),
    ({"attn": None}, "`drop_rate_attn` is ignored"),
    ({"shortcut": None}, "`drop_rate_shortcut` is ignored"),
    ({"emb": "attn"}, "`drop_rate_emb` is ignored"),
    ({"attn": "emb"}, "acts on the embeddings, as it should, but also on the attention weights"),
    ({"emb": "attn", "attn": "emb"}, "acts on the attention weights instead of the embeddings"),
    ({"shortcut": "attn"}, "`drop_rate_shortcut` is ignored"),
    ({"attn": "shortcut"}, "`drop_rate_attn` is ignored"),
    (
        {"attn": "shortcut", "shortcut": "attn"},
        "`drop_rate_shortcut` acts on the attention weights instead of what attention adds and",
    ),
    ({"forward": one_dropout}, "on what attention adds, but not on what the feed-forward"),
    ({"forward": dropout_of_all}, "drop what a sub-layer adds, and not the sum"),
    ({"forward": always}, "evaluation mode has to switch dropout off"),
    ({"forward": no_norm}, "compare each line of `forward`"),
    ({"finish": set_norm}, "`final_norm` is still the placeholder"),
    ({"finish": set_blocks}, "the blocks are still placeholders"),
    ({"finish": set_head}, "it has the parameter `out_head.bias`"),
    ({"finish": set_positions}, "`pos_emb.weight` has the shape (5, 6), but (7, 6) follows"),
    ({"finish": rename}, "it lacks the parameter `final_norm.scale`"),
    ({"finish": half}, "something is still dropped in training mode"),
    ({"change": lambda cfg: cfg | {"n_layers": 1}}, "it lacks the parameter `trf_blocks.1."),
    ({"change": lambda cfg: cfg | {"qkv_bias": False}}, "`trf_blocks.0.att.W_query.bias`"),
    ({"change": lambda cfg: cfg | {"n_heads": 2}}, "compare each line of `forward`"),
    ({"change": lambda cfg: cfg | {"x": cfg["drop_rate"]}}, "it reads `drop_rate`"),
    ({"change": plain_config}, "`check_config` knows only its own entries"),
    ({"change": lambda cfg: cfg["rates"]}, "raised an error, KeyError: 'rates'"),
]


@pytest.mark.parametrize(("changes", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_a_mistake_in_the_class(changes, text):
    verdict = check("5.2", three_rates_in_torch(**changes))
    assert not verdict
    assert text in str(verdict)


def test_mistakes_in_jax():
    swapped = three_rates_in_jax(emb="shortcut", shortcut="emb")
    assert "what the feed-forward network adds instead of the emb" in str(check("5.2", swapped))
    assert "no `rngs` argument was provided" in str(check("5.2", three_rates_in_jax(keep=True)))


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        (torch.nn.Linear(2, 2), "a model"),
        (lambda cfg: None, "a function"),
        (SimpleNamespace, "a class that is no module of either backend"),
        (3.0, "a float"),
        ([three_rates_in_torch()], "a list"),
    ],
)
def test_another_form_is_one_sentence(answer, form):
    text = "5.2: this exercise expects the class ThreeRatesGPT, of either backend, not "
    assert str(check("5.2", answer)) == f"{text}{form}."
