"""Generating with a key-value cache, in Flax NNX: each token costs a pass over itself alone.

Shapes: B texts in a batch, T tokens at hand, S tokens that the cache has room for.
`d2lgpt.torch.cache` says the same in PyTorch.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from d2lgpt.checks import (
    check_cache,
    check_lengths,
    check_no_nan,
    check_prefix,
    check_sampling,
)
from d2lgpt.jax.modes import eval_mode
from d2lgpt.jax.rotary import rotate
from d2lgpt.jax.sampling import draw_token, random_key


class Place(nnx.Module):
    """Where the tokens at hand are in their texts. All layers of a model share one.

    `start`, (B, 1), is the position of the first token at hand of each text.
    """

    def __init__(self, start: jax.Array):
        self.start = nnx.Cache(start)

    def positions(self, T: int) -> jax.Array:
        """The positions of the T tokens at hand: (B, T)."""
        return self.start[...] + jnp.arange(T)[None]


class CachedAttention(nnx.Module):
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

    def __init__(self, attention: nnx.Module, place: Place, room: int):
        self.attention = attention
        self.place = place
        self.room = room

    def __call__(self, X: jax.Array) -> jax.Array:
        Q, K, V = self.attention.project(X)
        positions = self.place.positions(X.shape[1])  # (B, T)
        if getattr(self.attention, "rope", False):
            Q, K = rotate(Q, positions), rotate(K, positions)
        K, V = self.remember(K, V, positions)
        key_positions = jnp.arange(self.room)[None, None, None]
        visible = key_positions <= positions[:, None, :, None]  # (B, 1, T, S)
        return self.attention.merge(self.attention.attend(Q, K, V, visible))

    def remember(self, K, V, positions) -> tuple[jax.Array, jax.Array]:
        """Write new keys and values at their positions, and return all that there is room for."""
        heads_first = self.attention.heads_first
        K, V = (A if heads_first else A.swapaxes(1, 2) for A in (K, V))  # (B, heads, T, head_dim)
        if not hasattr(self, "keys"):
            B, heads, _, head_dim = K.shape
            self.keys = nnx.Cache(jnp.zeros((B, heads, self.room, head_dim), K.dtype))
            self.values = nnx.Cache(jnp.zeros((B, heads, self.room, head_dim), V.dtype))
        rows = jnp.arange(len(K))[:, None]
        self.keys[...] = self.keys[...].at[rows, :, positions].set(K.swapaxes(1, 2))
        self.values[...] = self.values[...].at[rows, :, positions].set(V.swapaxes(1, 2))
        K, V = self.keys[...], self.values[...]
        return (K, V) if heads_first else (K.swapaxes(1, 2), V.swapaxes(1, 2))


class CachedPositions(nnx.Module):
    """A position table for tokens that are not the first: looks up where they are."""

    def __init__(self, table: nnx.Embed, place: Place):
        self.table = table
        self.place = place
        self.num_embeddings = table.num_embeddings

    def __call__(self, positions: jax.Array) -> jax.Array:
        return self.table(self.place.positions(positions.shape[-1]))  # (B, T, D)


def with_cache(model: nnx.Module, place: Place, room: int) -> nnx.Module:
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
    twin = nnx.merge(*nnx.split(model))
    twin.eval()
    for block in blocks(twin):
        name = attention_name(block)
        setattr(block, name, CachedAttention(getattr(block, name), place, room))
    if hasattr(twin, "pos_emb"):
        twin.pos_emb = CachedPositions(twin.pos_emb, place)
    twin.place = place
    return twin


def generate_cached(
    model: nnx.Module,
    prefix: jax.Array,
    num_tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int | jax.Array = 0,
    lengths: jax.Array | None = None,
) -> jax.Array:
    """Continue each prefix by `num_tokens` tokens, with a cache: the tokens of `GPT.generate`.

    Args:
        model: a `GPT` of this package or a `GPTModel`; it is left as it is.
        prefix: token ids (B, T).
        num_tokens: how many tokens to add; T + num_tokens must fit the model's context.
        temperature, top_k, seed: as in `GPT.generate`.
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
    lengths = jnp.array(check_lengths(lengths, B, T))

    # Sizes in steps of 64, so that few of them are compiled.
    width, room = (-(-n // 64) * 64 for n in (T, T + num_tokens))
    buffer = jnp.pad(prefix, ((0, 0), (0, room - T)))
    with eval_mode(model):
        graphdef, state = nnx.split(model)
    buffer = fill_with_cache(
        graphdef,
        state,
        buffer,
        lengths,
        num_tokens,
        random_key(seed),
        temperature,
        top_k,
        width=min(width, max_len),
    )[:, : T + num_tokens]
    check_no_nan((buffer < 0).any())
    return buffer


@partial(jax.jit, static_argnames=("graphdef", "top_k", "width"))
def fill_with_cache(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    buffer: jax.Array,
    lengths: jax.Array,
    num_tokens: int,
    key: jax.Array,
    temperature: float,
    top_k: int | None,
    width: int,
) -> jax.Array:
    """Write `num_tokens` tokens behind each prompt of `buffer`, which has room for them.

    Compiled once for the shape of the buffer, the `width` in which prompts are read, and `top_k`.
    Token -1 marks a place where the logits held NaN or plus infinity.
    """
    B, room = buffer.shape
    model = with_cache(nnx.merge(graphdef, state), Place(jnp.zeros((B, 1), jnp.int32)), room)
    model(buffer[:, :width])  # all prompts at once; nobody needs these logits: none is computed
    graphdef, cache, weights = nnx.split(model, nnx.Cache, ...)
    rows, longest = jnp.arange(B), lengths.max()

    def step(i, carry):  # read the last token of each text again, or for the first time
        buffer, cache = carry
        model, last = nnx.merge(graphdef, cache, weights), lengths - 1 + i  # (B,)
        model.place.start[...] = last[:, None]
        logits = model(buffer[rows, last][:, None])[:, 0]  # (B, vocab_size)
        another_key = jax.random.fold_in(key, longest + i)  # for each token
        new = draw_token(logits, temperature, top_k, another_key)  # (B,)
        buffer = buffer.at[rows, last + 1].set(new.astype(buffer.dtype))
        return buffer, nnx.state(model, nnx.Cache)

    buffer, _ = jax.lax.fori_loop(0, num_tokens, step, (buffer, cache))
    return buffer


def can_cache(model: nnx.Module, length: int) -> bool:
    """Whether `model` can generate with a cache a text of `length` tokens, new ones included."""
    cached = all(attention_name(block) for block in blocks(model))
    return cached and length <= table_and_context(model)[1]


def attention_name(block: nnx.Module) -> str | None:
    """The name that a block gives its attention, or None if that cannot be cached.

    It can if it is causal and works in three steps, `project`, `attend` and `merge`. A subclass
    may change a step; one that changes how they follow each other is not known here.
    """
    for name, layer in vars(block).items():
        made_in = [name for kind in type(layer).__mro__ for name in STEPS if name in vars(kind)]
        if set(made_in) == set(STEPS) and made_in.index("__call__") >= made_in.index("project"):
            return name if getattr(layer, "is_causal", True) else None
    return None


STEPS = ("project", "attend", "merge", "__call__")


def blocks(model: nnx.Module) -> list[nnx.Module]:
    """The transformer blocks of a `GPT` or a `GPTModel`."""
    return (model.blks if hasattr(model, "blks") else model.trf_blocks).layers


def table_and_context(model: nnx.Module) -> tuple[nnx.Embed, int]:
    """The token embedding of a `GPT` or a `GPTModel`, and how many tokens it can see."""
    if hasattr(model, "token_emb"):
        return model.token_emb, model.max_len
    return model.tok_emb, model.pos_emb.num_embeddings
