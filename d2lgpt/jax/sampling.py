"""From the scores of a position to the probability of each token, which sampling draws from."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from d2lgpt.checks import check_sampling


def token_probabilities(
    logits: jax.Array, temperature: float = 1.0, top_k: int | None = None
) -> jax.Array:
    """The probability that each token is drawn: (..., V) -> (..., V).

    softmax(logits / temperature) over the `top_k` largest logits; the others get probability 0.
    Exactly `top_k` tokens are kept (of equal logits the first ones), or all, if there are fewer
    or `top_k` is None. Temperature 0 is greedy: probability 1 for the (first) largest logit; an
    infinite temperature makes all kept tokens equally likely. Fan et al. (2018) for top-k.

    A row with NaN or plus infinity among its logits gives NaN: look for it before drawing.

    Raises:
        ValueError: for a negative or NaN temperature, a top_k that is no positive whole number.
    """
    check_sampling(temperature, top_k)
    keep = logits.shape[-1] if top_k is None else min(top_k, logits.shape[-1])
    greedy = temperature < 1e-30  # zero, or too small to divide by
    temperature = jnp.where(greedy, 1.0, temperature)
    largest, ids = jax.lax.top_k(logits, keep)
    # The maximum is NaN as soon as one logit is, wherever it was sorted to.
    scores = (largest - logits.max(axis=-1, keepdims=True)) / temperature
    scores = jnp.where(greedy & (jnp.arange(keep) > 0), -jnp.inf, scores)
    probas = jax.nn.softmax(scores, axis=-1)  # (..., keep)
    zeros = jnp.zeros_like(logits)
    return jnp.put_along_axis(zeros, ids, probas, axis=-1, inplace=False)


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
        probas = token_probabilities(logits, temperature, top_k)
        draw = jax.random.fold_in(key, t)  # another key for each token
        next_token = jax.random.categorical(draw, jnp.log(probas))  # (B,)
        # Compiled code cannot raise an error, so NaN becomes -1, which no token is.
        next_token = jnp.where(jnp.isnan(probas).any(axis=-1), -1, next_token)
        return buffer.at[:, t].set(next_token.astype(buffer.dtype))

    return jax.lax.fori_loop(known, buffer.shape[1], step, buffer)
