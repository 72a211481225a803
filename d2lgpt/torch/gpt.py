"""A configurable GPT, in PyTorch: the language model of Part II.

Shapes: B sequences in a batch, T tokens in a sequence, D = num_hiddens numbers for a token.
`d2lgpt.jax.gpt` says the same in Flax NNX, line by line.
"""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from d2lgpt.checks import (
    check_choice,
    check_heads,
    check_prefix,
    check_sampling,
    check_token_ids,
)
from d2lgpt.torch.cache import can_cache, generate_cached
from d2lgpt.torch.modes import eval_mode
from d2lgpt.torch.rotary import rotate
from d2lgpt.torch.sampling import draw_token


class FeedForward(nn.Module):
    """The position-wise network of a block, plain or gated: (..., D) -> (..., D).

    "gelu": W_2 gelu(W_1 x), 4 D wide, GELU in its tanh form. "swiglu": W_2 (silu(W_g x) * W_1 x),
    round(8 D / 3) wide, so that both have nearly the same number of parameters. Shazeer (2020).

    Raises:
        ValueError: for another `act`.
    """

    def __init__(self, num_hiddens: int, act: str = "swiglu", bias: bool = False):
        super().__init__()
        check_choice("act", act, ("gelu", "swiglu"))
        self.act = act
        width = 4 * num_hiddens if act == "gelu" else round(8 * num_hiddens / 3)
        if act == "swiglu":
            self.W_g = nn.Linear(num_hiddens, width, bias=bias)
        self.W_1 = nn.Linear(num_hiddens, width, bias=bias)
        self.W_2 = nn.Linear(width, num_hiddens, bias=bias)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        if self.act == "gelu":
            return self.W_2(F.gelu(self.W_1(X), approximate="tanh"))
        return self.W_2(F.silu(self.W_g(X)) * self.W_1(X))


class TransformerBlock(nn.Module):
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
    ):
        super().__init__()
        check_heads(num_hiddens, num_heads, dropout)
        self.pre_norm = pre_norm
        self.norm1 = make_norm(norm, num_hiddens)
        self.norm2 = make_norm(norm, num_hiddens)
        self.attention = (
            attn_factory()
            if attn_factory
            else GPT.CausalAttention(num_hiddens, num_heads, rope=False, bias=bias)
        )
        self.ffn = ffn_factory() if ffn_factory else FeedForward(num_hiddens, act, bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        if self.pre_norm:
            X = X + self.dropout(self.attention(self.norm1(X)))
            return X + self.dropout(self.ffn(self.norm2(X)))
        X = self.norm1(X + self.dropout(self.attention(X)))
        return self.norm2(X + self.dropout(self.ffn(X)))


def make_norm(norm: str, num_hiddens: int) -> nn.Module:
    """RMS normalization ("rms") or layer normalization ("layer"), with stated epsilons.

    They are 1e-6 and 1e-5, and stated, because the frameworks' defaults differ.
    """
    check_choice("norm", norm, ("rms", "layer"))
    if norm == "rms":
        return nn.RMSNorm(num_hiddens, eps=1e-6)
    return nn.LayerNorm(num_hiddens, eps=1e-5)


class GPT(nn.Module):
    """A decoder-only language model whose parts can be chosen; its head is the token table.

    Token ids (B, T) -> logits (B, T, vocab_size). The defaults make a small modern model (rotary
    positions, RMS normalization, SwiGLU); `pos="learned", norm="layer", act="gelu", bias=True`
    with the sizes of GPT-2 makes GPT-2. Radford et al. (2019).

    Raises:
        ValueError: for an impossible choice, and for ids that the model cannot take.
    """

    class CausalAttention(nn.Module):
        """Self-attention by the fused kernel: (B, T, D) -> (B, T, D)."""

        is_causal = True

        def __init__(self, num_hiddens: int, num_heads: int, rope: bool, bias: bool = False):
            super().__init__()
            check_heads(num_hiddens, num_heads, dropout=0)
            self.num_heads = num_heads
            self.rope = rope
            self.W_qkv = nn.Linear(num_hiddens, 3 * num_hiddens, bias=bias)
            self.W_o = nn.Linear(num_hiddens, num_hiddens, bias=bias)

        def forward(self, X: torch.Tensor) -> torch.Tensor:
            Q, K, V = self.project(X)
            if self.rope:
                Q, K = rotate(Q), rotate(K)
            return self.merge(self.attend(Q, K, V))

        def project(self, X: torch.Tensor) -> torch.Tensor:
            B, T, _ = X.shape
            # (B, T, 3 D) -> queries, keys and values of shape (B, heads, T, head_dim)
            return self.W_qkv(X).reshape(B, T, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)

        def attend(self, Q, K, V, visible: torch.Tensor | None = None) -> torch.Tensor:
            # visible: which keys each query sees, if not those of its own and earlier positions
            causal = self.is_causal and visible is None
            return F.scaled_dot_product_attention(Q, K, V, visible, is_causal=causal)

        def merge(self, Y: torch.Tensor) -> torch.Tensor:
            return self.W_o(Y.transpose(1, 2).flatten(2))  # (B, T, D)

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
    ):
        super().__init__()
        check_choice("pos", pos, ("rope", "learned"))
        self.max_len = max_len
        self.pos = pos
        self.token_emb = nn.Embedding(vocab_size, num_hiddens)
        nn.init.normal_(self.token_emb.weight, std=0.02)
        if pos == "learned":
            self.pos_emb = nn.Embedding(max_len, num_hiddens)
            nn.init.normal_(self.pos_emb.weight, std=0.02)

        def attention():
            return self.CausalAttention(num_hiddens, num_heads, pos == "rope", bias)

        self.blks = nn.Sequential(
            *[
                TransformerBlock(
                    num_hiddens, num_heads, dropout, norm, act, pre_norm, bias, attention
                )
                for _ in range(num_blks)
            ]
        )
        self.norm = make_norm(norm, num_hiddens)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        check_token_ids(tokens, self.token_emb, self.max_len)
        X = self.token_emb(tokens)
        if self.pos == "learned":
            X = X + self.pos_emb(torch.arange(tokens.shape[1], device=tokens.device))
        for blk in self.blks:
            X = blk(X)
        return self.norm(X) @ self.token_emb.weight.T  # the head is tied

    def generate(
        self,
        prefix: torch.Tensor,
        num_tokens: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
        cache: bool | None = None,
    ) -> torch.Tensor:
        """Continue each prefix by `num_tokens` tokens, drawn one after the other.

        With a cache, each token costs a forward pass over itself alone (`d2lgpt.torch.cache`).
        Without one, a pass over the last `max_len` tokens: slow, and it may go on forever.

        Args:
            prefix: token ids (B, T); without a cache, T may exceed `max_len`.
            num_tokens: how many tokens to add.
            temperature: what the logits are divided by. 0 is greedy decoding.
            top_k: draw from that many most probable tokens only.
            generator: where the random numbers come from; by default PyTorch's global one.
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
            return generate_cached(self, prefix, num_tokens, temperature, top_k, generator)
        with eval_mode(self), torch.no_grad():
            for _ in range(num_tokens):
                logits = self(prefix[:, -self.max_len :])[:, -1]  # (B, vocab_size)
                next_token = draw_token(logits, temperature, top_k, generator)  # (B,)
                prefix = torch.cat([prefix, next_token[:, None].type_as(prefix)], dim=1)
        return prefix
