"""Generating with a key-value cache, in PyTorch: each token costs a pass over itself alone.

Shapes: B texts in a batch, T tokens at hand, S tokens that the cache has room for.
`d2lgpt.jax.cache` says the same in Flax NNX.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from d2lgpt.checks import (
    check_cache,
    check_lengths,
    check_prefix,
    check_sampling,
)
from d2lgpt.torch.rotary import rotate
from d2lgpt.torch.sampling import draw_token


class Place:
    """Where the tokens at hand are in their texts. All layers of a model share one.

    `start`, (B, 1), is the position of the first token at hand of each text.
    """

    def __init__(self, start: torch.Tensor):
        self.start = start

    def positions(self, T: int) -> torch.Tensor:
        """The positions of the T tokens at hand: (B, T)."""
        return self.start + torch.arange(T, device=self.start.device)


class CachedAttention(nn.Module):
    """An attention layer that remembers keys and values: (B, T, D) -> (B, T, D).

    Its input are the T tokens that are new. It writes their keys and values behind those of the
    tokens before, and lets each query see all that are there up to its own position. Memory:
    keys and values, each (B, heads, S, head_dim) in the dtype of the layer, taken at the first
    call. Pope et al. (2022).

    Args:
        attention: a layer with the methods `project`, `attend` and `merge`, which are shared.
        place: where the new tokens are.
        room: S, the most tokens of a text.
    """

    def __init__(self, attention: nn.Module, place: Place, room: int):
        super().__init__()
        self.attention = attention
        self.place = place
        self.room = room

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        Q, K, V = self.attention.project(X)  # K and V: (B, heads, T, head_dim)
        positions = self.place.positions(X.shape[1])  # (B, T)
        if getattr(self.attention, "rope", False):
            Q, K = rotate(Q, positions), rotate(K, positions)
        K, V = self.remember(K, V, positions)
        key_positions = torch.arange(self.room, device=X.device)
        visible = key_positions <= positions[:, None, :, None]  # (B, 1, T, S)
        return self.attention.merge(self.attention.attend(Q, K, V, visible))

    def remember(self, K, V, positions) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new keys and values at their positions, and return all that there is room for."""
        if not hasattr(self, "keys"):
            B, heads, _, head_dim = K.shape
            self.keys = K.new_zeros(B, heads, self.room, head_dim)
            self.values = V.new_zeros(B, heads, self.room, head_dim)
        rows = torch.arange(len(K), device=K.device)[:, None]
        self.keys[rows, :, positions] = K.transpose(1, 2)  # (B, T, heads, head_dim)
        self.values[rows, :, positions] = V.transpose(1, 2)
        return self.keys, self.values


class CachedPositions(nn.Module):
    """A position table for tokens that are not the first: looks up where they are."""

    def __init__(self, table: nn.Embedding, place: Place):
        super().__init__()
        self.table = table
        self.place = place
        self.num_embeddings = table.num_embeddings

    def forward(self, positions: torch.Tensor) -> torch.Tensor:
        return self.table(self.place.positions(positions.shape[-1]))  # (B, T, D)


def with_cache(model: nn.Module, place: Place, room: int) -> nn.Module:
    """A twin of `model`, in evaluation mode, that shares its weights and remembers what it read.

    Call it with the tokens that are new, after setting `place.start` to where they are.

    Raises:
        ValueError: if a block has no attention that can be cached.
    """
    if not all(attention_name(block) for block in blocks(model)):
        raise ValueError(
            "this model cannot generate with a cache: a block has no causal attention with the "
            "methods project, attend and merge. Generate with cache=False"
        )
    weights = [*model.parameters(), *model.buffers()]
    twin = copy.deepcopy(model, {id(weight): weight for weight in weights}).eval()
    for block in blocks(twin):
        name = attention_name(block)
        setattr(block, name, CachedAttention(getattr(block, name), place, room))
    if hasattr(twin, "pos_emb"):
        twin.pos_emb = CachedPositions(twin.pos_emb, place)
    twin.place = place
    return twin


def generate_cached(
    model: nn.Module,
    prefix: torch.Tensor,
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
    lengths: torch.Tensor | None = None,
) -> torch.Tensor:
    """Continue each prefix by `num_tokens` tokens, with a cache: the tokens of `GPT.generate`.

    Args:
        model: a `GPT` of this package or a `GPTModel`; it is left as it is.
        prefix: token ids (B, T).
        num_tokens: how many tokens to add; T + num_tokens must fit the model's context.
        temperature, top_k, generator: as in `GPT.generate`.
        lengths: (B,), where prompts differ in length: row b of `prefix` begins with lengths[b]
            tokens and is padded with any ids behind them.

    Returns:
        (B, T + num_tokens) ids: row b begins with its lengths[b] + num_tokens tokens.

    Raises:
        ValueError: as `GPT.generate`, and for lengths that are none.
    """
    table, max_len = table_and_context(model)
    num_tokens = check_prefix(prefix, num_tokens, table)
    temperature, top_k = check_sampling(temperature, top_k)
    B, T = prefix.shape
    check_cache(T + num_tokens, max_len)
    lengths = check_lengths(lengths, B, T)

    last = torch.as_tensor(lengths, device=prefix.device)[:, None] - 1  # (B, 1): of each text
    model = with_cache(model, Place(torch.zeros_like(last)), T + num_tokens)
    rows = torch.arange(B, device=prefix.device)[:, None]
    ids = F.pad(prefix, (0, num_tokens))
    new = prefix  # first, all of the prompt; then one token at a time
    with torch.no_grad():
        for i in range(num_tokens):
            logits = model(new)  # (B, T, vocab_size), then (B, 1, vocab_size)
            logits = logits[rows, last][:, 0] if i == 0 else logits[:, 0]
            new = draw_token(logits, temperature, top_k, generator)[:, None].type_as(ids)
            ids[rows, last + 1 + i] = new
            model.place.start = last + 1 + i
    return ids


def can_cache(model: nn.Module, length: int) -> bool:
    """Whether `model` can generate with a cache a text of `length` tokens, new ones included."""
    cached = all(attention_name(block) for block in blocks(model))
    return cached and length <= table_and_context(model)[1]


def attention_name(block: nn.Module) -> str | None:
    """The name that a block gives its attention, or None if that cannot be cached.

    It can if it is causal and works in three steps, `project`, `attend` and `merge`. A subclass
    may change a step; one that changes how they follow each other is not known here.
    """
    for name, layer in block.named_children():
        made_in = [name for kind in type(layer).__mro__ for name in STEPS if name in vars(kind)]
        if set(made_in) == set(STEPS) and made_in.index("forward") >= made_in.index("project"):
            return name if getattr(layer, "is_causal", True) else None
    return None


STEPS = ("project", "attend", "merge", "forward")


def blocks(model: nn.Module) -> nn.Sequential:
    """The transformer blocks of a `GPT` or a `GPTModel`."""
    return model.blks if hasattr(model, "blks") else model.trf_blocks


def table_and_context(model: nn.Module) -> tuple[nn.Embedding, int]:
    """The token embedding of a `GPT` or a `GPTModel`, and how many tokens it can see."""
    if hasattr(model, "token_emb"):
        return model.token_emb, model.max_len
    return model.tok_emb, model.pos_emb.num_embeddings
