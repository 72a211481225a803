"""GPT from scratch, in PyTorch: the classes of Part I, in the order in which chapters build them.

Shapes: B sequences in a batch, T tokens in a sequence, D = emb_dim numbers for a token.
`d2lgpt.jax.scratch` says the same in Flax NNX, line by line.
"""

import math
from itertools import pairwise

import torch
from torch import nn

from d2lgpt.checks import (
    check_config,
    check_generation,
    check_heads,
    check_length,
    check_no_nan,
    check_token_ids,
)
from d2lgpt.torch.modes import eval_mode


class DummyGPTModel(nn.Module):
    """The outline of GPT-2: real embeddings and head around blocks that do nothing yet.

    Token ids (B, T) -> logits (B, T, vocab_size), float32. Radford et al. (2019).

    Raises:
        ValueError: for an impossible configuration, and for ids that the model cannot take.
    """

    def __init__(self, cfg: dict):
        super().__init__()
        check_config(cfg)
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.drop_emb = nn.Dropout(cfg["drop_rate"])
        self.trf_blocks = nn.Sequential(
            *[DummyTransformerBlock(cfg) for _ in range(cfg["n_layers"])]
        )
        self.final_norm = DummyLayerNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, in_idx: torch.Tensor) -> torch.Tensor:
        check_token_ids(in_idx, self.tok_emb, self.pos_emb.num_embeddings)
        positions = torch.arange(in_idx.shape[1], device=in_idx.device)
        x = self.tok_emb(in_idx) + self.pos_emb(positions)  # (B, T, D) + (T, D)
        x = self.drop_emb(x)
        x = self.trf_blocks(x)
        x = self.final_norm(x)
        return self.out_head(x)  # (B, T, vocab_size)


class DummyTransformerBlock(nn.Module):
    """A placeholder for `TransformerBlock`: (B, T, D) -> the same numbers."""

    def __init__(self, cfg: dict):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class DummyLayerNorm(nn.Module):
    """A placeholder for `LayerNorm`: (..., D) -> the same numbers."""

    def __init__(self, emb_dim: int):
        super().__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class LayerNorm(nn.Module):
    """Layer normalization: each vector of the last axis gets mean 0 and variance 1.

    (..., D) -> (..., D): scale * (x - mean) / sqrt(var + eps) + shift, with the biased variance
    (divided by D, not D - 1) and eps = 1e-5, as in GPT-2. Ba et al. (2016).
    """

    def __init__(self, emb_dim: int):
        super().__init__()
        self.eps = 1e-5
        self.scale = nn.Parameter(torch.ones(emb_dim))
        self.shift = nn.Parameter(torch.zeros(emb_dim))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # squares overflow in float16
        mean = wide.mean(dim=-1, keepdim=True)
        var = wide.var(dim=-1, keepdim=True, unbiased=False)
        normalized = self.scale * (wide - mean) / torch.sqrt(var + self.eps) + self.shift
        return normalized.type_as(x)


class GELU(nn.Module):
    """The Gaussian error linear unit in GPT-2's tanh form, on each number by itself.

    (...) -> (...): 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
    Hendrycks and Gimpel (2016).
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return 0.5 * x * (1 + torch.tanh(inner))


class FeedForward(nn.Module):
    """The position-wise network of a block: expand to 4 D, GELU, back to D.

    (B, T, D) -> (B, T, D); each position is treated alike and on its own.
    """

    def __init__(self, cfg: dict):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(cfg["emb_dim"], 4 * cfg["emb_dim"]),
            GELU(),
            nn.Linear(4 * cfg["emb_dim"], cfg["emb_dim"]),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class ExampleDeepNeuralNetwork(nn.Module):
    """Linear + GELU layers, with or without shortcuts, to watch gradients in.

    (B, layer_sizes[0]) -> (B, layer_sizes[-1]). A shortcut is added where a layer keeps the shape.
    """

    def __init__(self, layer_sizes: list[int], use_shortcut: bool):
        super().__init__()
        self.use_shortcut = use_shortcut
        self.layers = nn.Sequential(
            *[nn.Sequential(nn.Linear(m, n), GELU()) for m, n in pairwise(layer_sizes)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            out = layer(x)
            x = x + out if self.use_shortcut and out.shape == x.shape else out
        return x


def gradient_means(model: nn.Module, x: torch.Tensor) -> list[float]:
    """Mean absolute gradient of each weight matrix, first layer first.

    The loss is the mean squared error of `model(x)` against zeros. The model is left as it was.
    """
    loss = model(x).square().mean()
    weights = [p for p in model.parameters() if p.ndim == 2]
    return [grad.abs().mean().item() for grad in torch.autograd.grad(loss, weights)]


class MultiHeadAttention(nn.Module):
    """Causal multi-head attention: a token looks at itself and those before it.

    (B, T, d_in) -> (B, T, d_out). In each head softmax(q k^T / sqrt(head_dim)) weighs the values,
    with scores of later tokens set to minus infinity. Vaswani et al. (2017).

    Raises:
        ValueError: if the heads do not divide d_out, or T exceeds context_length.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        context_length: int,
        dropout: float,
        num_heads: int,
        qkv_bias: bool = False,
    ):
        super().__init__()
        check_heads(d_out, num_heads, dropout, "d_out")
        self.context_length = context_length
        self.num_heads = num_heads
        self.W_query = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_key = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.W_value = nn.Linear(d_in, d_out, bias=qkv_bias)
        self.out_proj = nn.Linear(d_out, d_out)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        check_length(x.shape[1], self.context_length)
        return self.merge(self.attend(*self.project(x)))

    def project(self, x: torch.Tensor) -> list[torch.Tensor]:
        B, T, _ = x.shape
        matrices = (self.W_query, self.W_key, self.W_value)
        # each (B, T, d_out) -> (B, heads, T, head_dim)
        return [W(x).reshape(B, T, self.num_heads, -1).transpose(1, 2) for W in matrices]

    def attend(self, queries, keys, values, visible=None) -> torch.Tensor:
        if visible is None:  # each token sees itself and those before it
            T = queries.shape[-2]
            visible = torch.ones(1, 1, T, T, dtype=torch.bool, device=queries.device).tril()
        # scores: (B, heads, T, T), how well each query matches each key
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(keys.shape[-1])
        scores = scores.masked_fill(~visible, -torch.inf)
        weights = self.dropout(torch.softmax(scores, dim=-1))
        return weights @ values  # (B, heads, T, head_dim)

    def merge(self, context: torch.Tensor) -> torch.Tensor:
        B, _, T, _ = context.shape
        return self.out_proj(context.transpose(1, 2).reshape(B, T, -1))


class TransformerBlock(nn.Module):
    """A pre-norm block: attention, then feed-forward, each on a shortcut.

    (B, T, D) -> (B, T, D): x + drop(att(norm1(x))), then x + drop(ff(norm2(x))).
    Radford et al. (2019).
    """

    def __init__(self, cfg: dict):
        super().__init__()
        self.att = MultiHeadAttention(
            d_in=cfg["emb_dim"],
            d_out=cfg["emb_dim"],
            context_length=cfg["context_length"],
            dropout=cfg["drop_rate"],
            num_heads=cfg["n_heads"],
            qkv_bias=cfg["qkv_bias"],
        )
        self.ff = FeedForward(cfg)
        self.norm1 = LayerNorm(cfg["emb_dim"])
        self.norm2 = LayerNorm(cfg["emb_dim"])
        self.drop_shortcut = nn.Dropout(cfg["drop_rate"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(x)))


class GPTModel(nn.Module):
    """GPT-2: the outline of `DummyGPTModel` with real blocks and a real final norm.

    Token ids (B, T) -> logits (B, T, vocab_size), float32. Radford et al. (2019).

    Raises:
        ValueError: for an impossible configuration, and for ids that the model cannot take.
    """

    def __init__(self, cfg: dict):
        super().__init__()
        check_config(cfg)
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.drop_emb = nn.Dropout(cfg["drop_rate"])
        self.trf_blocks = nn.Sequential(*[TransformerBlock(cfg) for _ in range(cfg["n_layers"])])
        self.final_norm = LayerNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, in_idx: torch.Tensor) -> torch.Tensor:
        check_token_ids(in_idx, self.tok_emb, self.pos_emb.num_embeddings)
        positions = torch.arange(in_idx.shape[1], device=in_idx.device)
        x = self.tok_emb(in_idx) + self.pos_emb(positions)  # (B, T, D) + (T, D)
        x = self.drop_emb(x)
        x = self.trf_blocks(x)
        x = self.final_norm(x)
        return self.out_head(x)  # (B, T, vocab_size)


def generate_text_simple(
    model: nn.Module, idx: torch.Tensor, max_new_tokens: int, context_size: int
) -> torch.Tensor:
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
    with eval_mode(model), torch.no_grad():
        for _ in range(max_new_tokens):
            logits = model(idx[:, -context_size:])[:, -1]  # (B, vocab_size)
            probas = torch.softmax(logits, dim=-1)
            check_no_nan(probas.isnan().any())
            next_idx = probas.argmax(dim=-1, keepdim=True)  # (B, 1)
            idx = torch.cat([idx, next_idx], dim=1)  # one token longer
    return idx
