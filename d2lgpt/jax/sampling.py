"""From the scores of a position to the probability of each token, which sampling draws from."""

from functools import partial
from numbers import Integral

import jax
import jax.numpy as jnp
from flax import nnx

from d2lgpt.checks import check_sampling
from d2lgpt.config import plain

#: A temperature below this is zero: too small to divide by in float32.
GREEDY = 1e-30


def token_probabilities(
    logits: jax.Array, temperature: float = 1.0, top_k: int | None = None
) -> jax.Array:
    """The probability that each token is drawn: (..., V) -> (..., V).

    softmax(logits / temperature) over the `top_k` largest logits; the others get probability 0.
    Exactly `top_k` tokens are kept (of equal logits the first ones), or all, if there are fewer
    or `top_k` is None. Temperature 0 is greedy: probability 1 for the (first) largest logit; an
    infinite temperature makes all kept tokens equally likely. Fan et al. (2018) for top-k.

    A row with NaN or plus infinity among its logits gives NaN: look for it before drawing. Logits
    in half precision give probabilities in float32.

    Raises:
        ValueError: for a negative or NaN temperature, a top_k that is no positive whole number.
    """
    temperature, top_k = check_sampling(temperature, top_k)
    greedy = temperature < GREEDY
    temperature = jnp.where(greedy, 1.0, temperature)
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    # The maximum is NaN as soon as one logit is.
    scores = (logits - logits.max(axis=-1, keepdims=True)) / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        scores = jnp.where(among_largest(logits, top_k), scores, -jnp.inf)
    first = jax.nn.one_hot(logits.argmax(axis=-1), logits.shape[-1], dtype=bool)
    scores = jnp.where(greedy & ~first, -jnp.inf, scores)
    return jax.nn.softmax(scores, axis=-1)


def among_largest(logits: jax.Array, k: int) -> jax.Array:
    """Which logits are the k largest of their row, of equal ones the first: (..., V) -> (..., V).

    A row with NaN may keep none.
    """
    logits = jnp.where(logits == 0, 0, logits)  # to top_k, minus zero is less than zero
    _, ids = jax.lax.top_k(logits, k)  # of equal ones the first
    return jnp.put_along_axis(jnp.zeros(logits.shape, bool), ids, True, axis=-1, inplace=False)


def draw_token(
    logits: jax.Array, temperature: float, top_k: int | None, key: jax.Array
) -> jax.Array:
    """Draw a token for each row by its probability: logits (B, V) -> ids (B,).

    Compiled code cannot raise an error, so NaN or plus infinity among the logits of a row give
    the id -1, which no token has.
    """

    def largest():  # nothing to draw: the (first) largest
        return logits.argmax(axis=-1), jnp.isfinite(logits.max(axis=-1))

    def drawn():
        probas = token_probabilities(logits, temperature, top_k)
        ids = jax.random.categorical(key, jnp.log(probas))
        return ids, ~jnp.isnan(probas).any(axis=-1)

    ids, sound = jax.lax.cond(temperature < GREEDY, largest, drawn)
    return jnp.where(sound, ids, -1)


@partial(jax.jit, static_argnames=("graphdef", "window", "top_k"))
def sample_buffer(
    graphdef: nnx.GraphDef,
    state: nnx.State,
    buffer: jax.Array,
    known: int,
    window: int,
    key: jax.Array,
    temperature: float,
    top_k: int | None,
) -> jax.Array:
    """Fill `buffer` from the first unknown token to its end by drawing tokens.

    Compiled once for the shape of the buffer, the window that the model sees, and `top_k`. Token
    -1 marks a place where the logits held NaN or plus infinity.
    """
    model = nnx.merge(graphdef, state)

    def step(t, buffer):  # tokens 0 ... t - 1 are known; write token t
        start = jnp.maximum(t - window, 0)
        visible = jax.lax.dynamic_slice_in_dim(buffer, start, window, axis=1)
        logits = model(visible)[:, t - 1 - start]  # (B, vocab_size)
        another_key = jax.random.fold_in(key, t)  # for each token
        next_token = draw_token(logits, temperature, top_k, another_key)  # (B,)
        return buffer.at[:, t].set(next_token.astype(buffer.dtype))

    return jax.lax.fori_loop(known, buffer.shape[1], step, buffer)


def random_key(seed: int | jax.Array) -> jax.Array:
    """The key that a seed stands for: a whole number of any kind, or a key, which stays as it is.

    Raises:
        ValueError: for anything else.
    """
    number = plain(seed)
    if isinstance(number, Integral) and not isinstance(number, bool):
        return jax.random.key(number)
    if isinstance(seed, jax.Array):
        legacy = seed.dtype == jnp.uint32 and seed.shape == (2,)  # of jax.random.PRNGKey
        if legacy or (jnp.issubdtype(seed.dtype, jax.dtypes.prng_key) and seed.shape == ()):
            return seed
    raise ValueError(f"seed must be a whole number or a key of jax.random.key, not {seed!r}")
