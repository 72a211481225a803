"""A configurable GPT, in Flax NNX: the language model of Part II.

Shapes: B sequences in a batch, T tokens in a sequence, D = num_hiddens numbers for a token.
`d2lgpt.torch.gpt` says the same in PyTorch, line by line.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from d2lgpt.checks import (
    check_choice,
    check_heads,
    check_no_nan,
    check_prefix,
    check_sampling,
    check_token_ids,
)
from d2lgpt.jax.cache import can_cache, generate_cached
from d2lgpt.jax.modes import eval_mode
from d2lgpt.jax.rotary import rotate
from d2lgpt.jax.sampling import random_key, sample_buffer


class Linear(nnx.Linear):
    """`nnx.Linear` on a matrix of tokens: (..., m) -> (..., n).

    The same numbers, but XLA multiplies a matrix (B T, m) faster on a CPU than a stack (B, T, m):
    a training step takes about two thirds of the time. PyTorch's `nn.Linear` does this by itself.
    """

    def __call__(self, X: jax.Array) -> jax.Array:
        tokens = X.reshape(-1, X.shape[-1])
        return super().__call__(tokens).reshape(*X.shape[:-1], -1)


class FeedForward(nnx.Module):
    """The position-wise network of a block, plain or gated: (..., D) -> (..., D).

    "gelu": W_2 gelu(W_1 x), 4 D wide, GELU in its tanh form. "swiglu": W_2 (silu(W_g x) * W_1 x),
    round(8 D / 3) wide, so that both have nearly the same number of parameters. Shazeer (2020).

    Raises:
        ValueError: for another `act`.
    """

    def __init__(
        self, num_hiddens: int, act: str = "swiglu", bias: bool = False, *, rngs: nnx.Rngs
    ):
        check_choice("act", act, ("gelu", "swiglu"))
        self.act = act
        width = 4 * num_hiddens if act == "gelu" else round(8 * num_hiddens / 3)
        if act == "swiglu":
            self.W_g = Linear(num_hiddens, width, use_bias=bias, rngs=rngs)
        self.W_1 = Linear(num_hiddens, width, use_bias=bias, rngs=rngs)
        self.W_2 = Linear(width, num_hiddens, use_bias=bias, rngs=rngs)

    def __call__(self, X: jax.Array) -> jax.Array:
        if self.act == "gelu":
            return self.W_2(jax.nn.gelu(self.W_1(X), approximate=True))
        return self.W_2(jax.nn.silu(self.W_g(X)) * self.W_1(X))


class TransformerBlock(nnx.Module):
    """One block: attention and feed-forward network, each normalized and on a shortcut.

    (B, T, D) -> (B, T, D). Pre-norm: X + drop(attention(norm1(X))), then + drop(ffn(norm2(.))).
    Post-norm: norm1(X + drop(attention(X))), then norm2(. + drop(ffn(.))). Xiong et al. (2020).
    `attn_factory` and `ffn_factory` take no arguments and return the sub-layer to use; by default
    causal attention without rotary positions, and `FeedForward(num_hiddens, act, bias)`.

    Raises:
        ValueError: for another `norm` or `act`, and if the heads do not divide num_hiddens.
    """

    def __init__(
        self,
        num_hiddens: int,
        num_heads: int,
        dropout: float = 0,
        norm: str = "rms",
        act: str = "swiglu",
        pre_norm: bool = True,
        bias: bool = False,
        attn_factory: Callable | None = None,
        ffn_factory: Callable | None = None,
        *,
        rngs: nnx.Rngs,
    ):
        check_heads(num_hiddens, num_heads, dropout)
        self.pre_norm = pre_norm
        self.norm1 = make_norm(norm, num_hiddens, rngs=rngs)
        self.norm2 = make_norm(norm, num_hiddens, rngs=rngs)
        self.attention = (
            attn_factory()
            if attn_factory
            else GPT.CausalAttention(num_hiddens, num_heads, rope=False, bias=bias, rngs=rngs)
        )
        self.ffn = ffn_factory() if ffn_factory else FeedForward(num_hiddens, act, bias, rngs=rngs)
        self.dropout = nnx.Dropout(dropout, rngs=rngs)

    def __call__(self, X: jax.Array) -> jax.Array:
        if self.pre_norm:
            X = X + self.dropout(self.attention(self.norm1(X)))
            return X + self.dropout(self.ffn(self.norm2(X)))
        X = self.norm1(X + self.dropout(self.attention(X)))
        return self.norm2(X + self.dropout(self.ffn(X)))


def make_norm(norm: str, num_hiddens: int, *, rngs: nnx.Rngs) -> nnx.Module:
    """RMS normalization ("rms") or layer normalization ("layer"), with stated epsilons.

    They are 1e-6 and 1e-5, and stated, because the frameworks' defaults differ.
    """
    check_choice("norm", norm, ("rms", "layer"))
    if norm == "rms":
        return nnx.RMSNorm(num_hiddens, epsilon=1e-6, rngs=rngs)
    # use_fast_variance would compute mean(x^2) - mean(x)^2, which loses digits.
    return nnx.LayerNorm(num_hiddens, epsilon=1e-5, use_fast_variance=False, rngs=rngs)


class GPT(nnx.Module):
    """A decoder-only language model whose parts can be chosen; its head is the token table.

    Token ids (B, T) -> logits (B, T, vocab_size). The defaults make a small modern model (rotary
    positions, RMS normalization, SwiGLU); `pos="learned", norm="layer", act="gelu", bias=True`
    with the sizes of GPT-2 makes GPT-2. Radford et al. (2019).

    Raises:
        ValueError: for an impossible choice, and for ids that the model cannot take.
    """

    class CausalAttention(nnx.Module):
        """Self-attention by the fused kernel: (B, T, D) -> (B, T, D)."""

        is_causal = True
        heads_first = False  # queries, keys and values: (B, T, heads, head_dim)

        def __init__(
            self,
            num_hiddens: int,
            num_heads: int,
            rope: bool,
            bias: bool = False,
            *,
            rngs: nnx.Rngs,
        ):
            check_heads(num_hiddens, num_heads, dropout=0)
            self.num_heads = num_heads
            self.rope = rope
            self.W_qkv = Linear(num_hiddens, 3 * num_hiddens, use_bias=bias, rngs=rngs)
            self.W_o = Linear(num_hiddens, num_hiddens, use_bias=bias, rngs=rngs)

        def __call__(self, X: jax.Array) -> jax.Array:
            Q, K, V = self.project(X)
            if self.rope:
                Q, K = rotate(Q), rotate(K)
            return self.merge(self.attend(Q, K, V))

        def project(self, X: jax.Array) -> jax.Array:
            B, T, _ = X.shape
            # (B, T, 3 D) -> queries, keys and values of shape (B, T, heads, head_dim)
            return jnp.moveaxis(self.W_qkv(X).reshape(B, T, 3, self.num_heads, -1), 2, 0)

        def attend(self, Q, K, V, visible: jax.Array | None = None) -> jax.Array:
            # visible: which keys each query sees, if not those of its own and earlier positions
            causal = self.is_causal and visible is None
            return jax.nn.dot_product_attention(Q, K, V, mask=visible, is_causal=causal)

        def merge(self, Y: jax.Array) -> jax.Array:
            B, T, _, _ = Y.shape
            return self.W_o(Y.reshape(B, T, -1))  # (B, T, D)

    def __init__(
        self,
        vocab_size: int,
        num_hiddens: int = 256,
        num_heads: int = 8,
        num_blks: int = 6,
        max_len: int = 1024,
        pos: str = "rope",
        norm: str = "rms",
        act: str = "swiglu",
        pre_norm: bool = True,
        bias: bool = False,
        dropout: float = 0,
        *,
        rngs: nnx.Rngs,
    ):
        check_choice("pos", pos, ("rope", "learned"))
        self.max_len = max_len
        self.pos = pos
        normal = nnx.initializers.normal(0.02)
        self.token_emb = nnx.Embed(vocab_size, num_hiddens, embedding_init=normal, rngs=rngs)
        if pos == "learned":
            self.pos_emb = nnx.Embed(max_len, num_hiddens, embedding_init=normal, rngs=rngs)

        def attention():
            return self.CausalAttention(num_hiddens, num_heads, pos == "rope", bias, rngs=rngs)

        self.blks = nnx.Sequential(
            *[
                TransformerBlock(
                    num_hiddens, num_heads, dropout, norm, act, pre_norm, bias, attention, rngs=rngs
                )
                for _ in range(num_blks)
            ]
        )
        self.norm = make_norm(norm, num_hiddens, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        check_token_ids(tokens, self.token_emb, self.max_len)
        X = self.token_emb(tokens)
        if self.pos == "learned":
            X = X + self.pos_emb(jnp.arange(tokens.shape[1])[None])
        for blk in self.blks.layers:
            X = blk(X)
        return self.token_emb.attend(self.norm(X))  # the head is tied

    def generate(
        self,
        prefix: jax.Array,
        num_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        seed: int | jax.Array = 0,
        cache: bool | None = None,
    ) -> jax.Array:
        """Continue each prefix by `num_tokens` tokens, drawn one after the other.

        With a cache, each token costs a forward pass over itself alone (`d2lgpt.jax.cache`).
        Without one, a pass over the last `max_len` tokens: slow, and it may go on forever.

        Args:
            prefix: token ids (B, T); without a cache, T may exceed `max_len`.
            num_tokens: how many tokens to add.
            temperature: what the logits are divided by. 0 is greedy decoding.
            top_k: draw from that many most probable tokens only.
            seed: a whole number, or a key; the same one always gives the same tokens.
            cache: True or False; by default wherever all T + num_tokens tokens fit `max_len`.

        Returns:
            (B, T + num_tokens) ids: the prefixes and what follows. Dropout is off meanwhile, and
            each sub-module is afterwards as it was.

        Raises:
            ValueError: for an empty prefix, an id out of range, a negative or NaN temperature, an
                impossible number of tokens or top_k, NaN or infinite logits; with `cache=True`,
                for more than `max_len` tokens, and for attention that cannot be cached.
        """
        num_tokens = check_prefix(prefix, num_tokens, self.token_emb)
        temperature, top_k = check_sampling(temperature, top_k)
        if cache or (cache is None and can_cache(self, prefix.shape[1] + num_tokens)):
            return generate_cached(self, prefix, num_tokens, temperature, top_k, seed)
        with eval_mode(self):
            graphdef, state = nnx.split(self)
        buffer = jnp.pad(prefix, ((0, 0), (0, num_tokens)))  # (B, T + num_tokens)
        window = min(self.max_len, buffer.shape[1])
        key = random_key(seed)
        buffer = sample_buffer(
            graphdef, state, buffer, prefix.shape[1], window, key, temperature, top_k
        )
        check_no_nan((buffer < 0).any())
        return buffer
