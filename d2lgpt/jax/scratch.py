"""GPT from scratch, in Flax NNX: the classes of Part I, in the order in which chapters build them.

Shapes: B sequences in a batch, T tokens in a sequence, D = emb_dim numbers for a token.
`d2lgpt.torch.scratch` says the same in PyTorch, line by line.
"""

import math
from functools import partial
from itertools import pairwise

import jax
import jax.numpy as jnp
from flax import nnx

from d2lgpt.checks import (
    check_config,
    check_generation,
    check_heads,
    check_length,
    check_no_nan,
    check_token_ids,
)
from d2lgpt.jax.modes import eval_mode


class DummyGPTModel(nnx.Module):
    """The outline of GPT-2: real embeddings and head around blocks that do nothing yet.

    Token ids (B, T) -> logits (B, T, vocab_size), float32. Radford et al. (2019).

    Raises:
        ValueError: for an impossible configuration, and for ids that the model cannot take.
    """

    def __init__(self, cfg: dict, *, rngs: nnx.Rngs):
        check_config(cfg)
        self.tok_emb = nnx.Embed(cfg["vocab_size"], cfg["emb_dim"], rngs=rngs)
        self.pos_emb = nnx.Embed(cfg["context_length"], cfg["emb_dim"], rngs=rngs)
        self.drop_emb = nnx.Dropout(cfg["drop_rate"], rngs=rngs)
        self.trf_blocks = nnx.Sequential(
            *[DummyTransformerBlock(cfg, rngs=rngs) for _ in range(cfg["n_layers"])]
        )
        self.final_norm = DummyLayerNorm(cfg["emb_dim"], rngs=rngs)
        self.out_head = nnx.Linear(cfg["emb_dim"], cfg["vocab_size"], use_bias=False, rngs=rngs)

    def __call__(self, in_idx: jax.Array) -> jax.Array:
        check_token_ids(in_idx, self.tok_emb, self.pos_emb.num_embeddings)
        positions = jnp.arange(in_idx.shape[1])[None]
        x = self.tok_emb(in_idx) + self.pos_emb(positions)  # (B, T, D) + (1, T, D)
        x = self.drop_emb(x)
        x = self.trf_blocks(x)
        x = self.final_norm(x)
        return self.out_head(x)  # (B, T, vocab_size)


class DummyTransformerBlock(nnx.Module):
    """A placeholder for `TransformerBlock`: (B, T, D) -> the same numbers."""

    def __init__(self, cfg: dict, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, x: jax.Array) -> jax.Array:
        return x


class DummyLayerNorm(nnx.Module):
    """A placeholder for `LayerNorm`: (..., D) -> the same numbers."""

    def __init__(self, emb_dim: int, *, rngs: nnx.Rngs | None = None):
        pass

    def __call__(self, x: jax.Array) -> jax.Array:
        return x


class LayerNorm(nnx.Module):
    """Layer normalization: each vector of the last axis gets mean 0 and variance 1.

    (..., D) -> (..., D): scale * (x - mean) / sqrt(var + eps) + shift, with the biased variance
    (divided by D, not D - 1) and eps = 1e-5, as in GPT-2. Ba et al. (2016).
    """

    def __init__(self, emb_dim: int, *, rngs: nnx.Rngs | None = None):  # nothing is drawn
        self.eps = 1e-5
        self.scale = nnx.Param(jnp.ones(emb_dim))
        self.shift = nnx.Param(jnp.zeros(emb_dim))

    def __call__(self, x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))  # squares overflow in float16
        mean = wide.mean(axis=-1, keepdims=True)
        var = wide.var(axis=-1, keepdims=True, ddof=0)
        scale, shift = (jnp.broadcast_to(p[...], x.shape) for p in (self.scale, self.shift))
        normalized = scale * (wide - mean) / jnp.sqrt(var + self.eps) + shift
        return normalized.astype(x.dtype)


class GELU(nnx.Module):
    """The Gaussian error linear unit in GPT-2's tanh form, on each number by itself.

    (...) -> (...): 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    Hendrycks and Gimpel (2016).
    """

    def __init__(self, *, rngs: nnx.Rngs | None = None):  # nothing is drawn
        pass

    def __call__(self, x: jax.Array) -> jax.Array:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + jnp.tanh(inner))


class FeedForward(nnx.Module):
    """The position-wise network of a block: expand to 4 D, GELU, back to D.

    (B, T, D) -> (B, T, D); each position is treated alike and on its own.
    """

    def __init__(self, cfg: dict, *, rngs: nnx.Rngs):
        self.layers = nnx.Sequential(
            nnx.Linear(cfg["emb_dim"], 4 * cfg["emb_dim"], rngs=rngs),
            GELU(rngs=rngs),
            nnx.Linear(4 * cfg["emb_dim"], cfg["emb_dim"], rngs=rngs),
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.layers(x)


class ExampleDeepNeuralNetwork(nnx.Module):
    """Linear + GELU layers, with or without shortcuts, to watch gradients in.

    (B, layer_sizes[0]) -> (B, layer_sizes[-1]). A shortcut is added where a layer keeps the shape.
    """

    def __init__(self, layer_sizes: list[int], use_shortcut: bool, *, rngs: nnx.Rngs):
        self.use_shortcut = use_shortcut
        self.layers = nnx.Sequential(
            *[
                nnx.Sequential(nnx.Linear(m, n, rngs=rngs), GELU(rngs=rngs))
                for m, n in pairwise(layer_sizes)
            ]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        for layer in self.layers.layers:
            out = layer(x)
            x = x + out if self.use_shortcut and out.shape == x.shape else out
        return x


def gradient_means(model: nnx.Module, x: jax.Array) -> list[float]:
    """Mean absolute gradient of each weight matrix, first layer first.

    The loss is the mean squared error of `model(x)` against zeros. The model is left as it was.
    """
    grads = nnx.grad(lambda model: jnp.square(model(x)).mean())(model)
    weights = [grad for grad in jax.tree.leaves(grads) if grad.ndim == 2]
    return [jnp.abs(grad).mean().item() for grad in weights]


class MultiHeadAttention(nnx.Module):
    """Causal multi-head attention: a token looks at itself and those before it.

    (B, T, d_in) -> (B, T, d_out). In each head softmax(q k^T / sqrt(head_dim)) weighs the values,
    with scores of later tokens set to minus infinity. Vaswani et al. (2017).

    Raises:
        ValueError: if the heads do not divide d_out, or T exceeds context_length.
    """

    heads_first = True  # queries, keys and values: (B, heads, T, head_dim)

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float,
        num_heads: int,
        qkv_bias: bool = False,
        *,
        rngs: nnx.Rngs,
    ):
        check_heads(d_out, num_heads, dropout, "d_out")
        self.context_length = context_length
        self.num_heads = num_heads
        self.W_query = nnx.Linear(d_in, d_out, use_bias=qkv_bias, rngs=rngs)
        self.W_key = nnx.Linear(d_in, d_out, use_bias=qkv_bias, rngs=rngs)
        self.W_value = nnx.Linear(d_in, d_out, use_bias=qkv_bias, rngs=rngs)
        self.out_proj = nnx.Linear(d_out, d_out, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        check_length(x.shape[1], self.context_length)
        return self.merge(self.attend(*self.project(x)))

    def project(self, x: jax.Array) -> list[jax.Array]:
        B, T, _ = x.shape
        matrices = (self.W_query, self.W_key, self.W_value)
        # each (B, T, d_out) -> (B, heads, T, head_dim)
        return [W(x).reshape(B, T, self.num_heads, -1).swapaxes(1, 2) for W in matrices]

    def attend(self, queries, keys, values, visible=None) -> jax.Array:
        if visible is None:  # each token sees itself and those before it
            T = queries.shape[-2]
            visible = jnp.tril(jnp.ones((1, 1, T, T), dtype=bool))
        # scores: (B, heads, T, T), how well each query matches each key
        scores = queries @ keys.swapaxes(-2, -1) / math.sqrt(keys.shape[-1])
        scores = jnp.where(visible, scores, -jnp.inf)
        weights = self.dropout(jax.nn.softmax(scores, axis=-1))
        return weights @ values  # (B, heads, T, head_dim)

    def merge(self, context: jax.Array) -> jax.Array:
        B, _, T, _ = context.shape
        return self.out_proj(context.swapaxes(1, 2).reshape(B, T, -1))


class TransformerBlock(nnx.Module):
    """A pre-norm block: attention, then feed-forward, each on a shortcut.

    (B, T, D) -> (B, T, D): x + drop(att(norm1(x))), then x + drop(ff(norm2(x))).
    Radford et al. (2019).
    """

    def __init__(self, cfg: dict, *, rngs: nnx.Rngs):
        self.att = MultiHeadAttention(
            d_in=cfg["emb_dim"],
            d_out=cfg["emb_dim"],
            context_length=cfg["context_length"],
            dropout=cfg["drop_rate"],
            num_heads=cfg["n_heads"],
            qkv_bias=cfg["qkv_bias"],
            rngs=rngs,
        )
        self.ff = FeedForward(cfg, rngs=rngs)
        self.norm1 = LayerNorm(cfg["emb_dim"], rngs=rngs)
        self.norm2 = LayerNorm(cfg["emb_dim"], rngs=rngs)
        self.drop_shortcut = nnx.Dropout(cfg["drop_rate"], rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(x)))


class GPTModel(nnx.Module):
    """GPT-2: the outline of `DummyGPTModel` with real blocks and a real final norm.

    Token ids (B, T) -> logits (B, T, vocab_size), float32. Radford et al. (2019).

    Raises:
        ValueError: for an impossible configuration, and for ids that the model cannot take.
    """

    def __init__(self, cfg: dict, *, rngs: nnx.Rngs):
        check_config(cfg)
        self.tok_emb = nnx.Embed(cfg["vocab_size"], cfg["emb_dim"], rngs=rngs)
        self.pos_emb = nnx.Embed(cfg["context_length"], cfg["emb_dim"], rngs=rngs)
        self.drop_emb = nnx.Dropout(cfg["drop_rate"], rngs=rngs)
        self.trf_blocks = nnx.Sequential(
            *[TransformerBlock(cfg, rngs=rngs) for _ in range(cfg["n_layers"])]
        )
        self.final_norm = LayerNorm(cfg["emb_dim"], rngs=rngs)
        self.out_head = nnx.Linear(cfg["emb_dim"], cfg["vocab_size"], use_bias=False, rngs=rngs)

    def __call__(self, in_idx: jax.Array) -> jax.Array:
        check_token_ids(in_idx, self.tok_emb, self.pos_emb.num_embeddings)
        positions = jnp.arange(in_idx.shape[1])[None]
        x = self.tok_emb(in_idx) + self.pos_emb(positions)  # (B, T, D) + (1, T, D)
        x = self.drop_emb(x)
        x = self.trf_blocks(x)
        x = self.final_norm(x)
        return self.out_head(x)  # (B, T, vocab_size)


def generate_text_simple(
    model: nnx.Module, idx: jax.Array, max_new_tokens: int, context_size: int
) -> jax.Array:
    """Continue each prompt by the most probable token, again and again (greedy decoding).

    Args:
        model: ids (B, T) -> logits (B, T, vocab_size). It is used in evaluation mode.
        idx: prompts, (B, T) token ids; T may exceed `context_size`.
        max_new_tokens: how many tokens to add.
        context_size: how many of the last tokens the model sees.

    Returns:
        (B, T + max_new_tokens) ids: the prompts and what follows.

    Raises:
        ValueError: for an empty prompt, an id out of range, an impossible size, broken logits.
    """
    max_new_tokens, context_size = check_generation(idx, max_new_tokens, context_size, model)
    with eval_mode(model):
        graphdef, state = nnx.split(model)
    buffer = jnp.pad(idx, ((0, 0), (0, max_new_tokens)))  # (B, T + max_new_tokens)
    window = min(context_size, buffer.shape[1])
    buffer = fill_buffer(graphdef, state, buffer, idx.shape[1], window)
    check_no_nan((buffer < 0).any())
    return buffer


@partial(jax.jit, static_argnames=("graphdef", "window"))
def fill_buffer(
    graphdef: nnx.GraphDef, state: nnx.State, buffer: jax.Array, known: int, window: int
) -> jax.Array:
    """Fill `buffer` from the first unknown token to its end; compiled once for its shape."""
    model = nnx.merge(graphdef, state)

    def step(t, buffer):  # tokens 0 ... t - 1 are known; write token t
        start = jnp.maximum(t - window, 0)
        visible = jax.lax.dynamic_slice_in_dim(buffer, start, window, axis=1)
        logits = model(visible)[:, t - 1 - start]  # (B, vocab_size)
        probas = jax.nn.softmax(logits, axis=-1)
        next_idx = probas.argmax(axis=-1)
        # Compiled code cannot raise an error, so NaN becomes -1, which no token is.
        next_idx = jnp.where(jnp.isnan(probas).any(axis=-1), -1, next_idx)
        return buffer.at[:, t].set(next_idx.astype(buffer.dtype))

    return jax.lax.fori_loop(known, buffer.shape[1], step, buffer)
