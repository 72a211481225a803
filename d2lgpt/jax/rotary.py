"""Rotary positions: the place of a token, told to attention by rotating queries and keys."""

import jax
import jax.numpy as jnp

from d2lgpt.checks import check_rotary


def rotate(X: jax.Array, positions: jax.Array | None = None) -> jax.Array:
    """Rotary positions: rotate each pair of entries by an angle that grows along the text.

    (..., T, heads, d) -> the same shape: at position t the pair (x_2i, x_2i+1), read as a complex
    number, is multiplied by exp(i t 10000^(-2i / d)). The dot product of two rotated vectors
    depends on the distance of their positions only. Su et al. (2021). `positions`, (T,) or (B, T)
    for X of shape (B, T, heads, d), are 0 ... T - 1 by default. Angles are float32, whatever X is.

    Raises:
        ValueError: if d is odd.
    """
    T, _, d = X.shape[-3:]
    check_rotary(d)
    if positions is None:
        positions = jnp.arange(T)
    pairs = jnp.arange(0, d, 2, dtype=jnp.float32)
    frequencies = 10000 ** (-pairs / d)
    angles = jnp.multiply.outer(positions.astype(jnp.float32), frequencies)  # (..., T, d / 2)
    even, odd = X[..., 0::2], X[..., 1::2]
    angles = jnp.broadcast_to(angles[..., None, :], even.shape)  # the same for all heads
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    rotated = jnp.stack((even * cos - odd * sin, even * sin + odd * cos), axis=-1)
    return rotated.reshape(X.shape).astype(X.dtype)
