"""Rotary positions: the place of a token, told to attention by rotating queries and keys."""

import torch

from d2lgpt.checks import check_rotary


def rotate(X: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
    """Rotary positions: rotate each pair of entries by an angle that grows along the text.

    (..., T, d) -> (..., T, d): at position t the pair (x_2i, x_2i+1), read as a complex number,
    is multiplied by exp(i t 10000^(-2i / d)). The dot product of two rotated vectors depends on
    the distance of their positions only. Su et al. (2021). `positions`, (T,) or (B, T) for X of
    shape (B, heads, T, d), are 0 ... T - 1 by default. Angles are float32, whatever X is.

    Raises:
        ValueError: if d is odd.
    """
    T, d = X.shape[-2:]
    check_rotary(d)
    if positions is None:
        positions = torch.arange(T, device=X.device)
    pairs = torch.arange(0, d, 2, dtype=torch.float32, device=X.device)
    frequencies = 10000 ** (-pairs / d)
    angles = positions[..., None] * frequencies  # (..., T, d / 2)
    even, odd = X[..., 0::2], X[..., 1::2]
    if angles.ndim == 3:
        angles = angles[:, None]  # the same for all heads
    cos, sin = angles.cos(), angles.sin()
    rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
    return rotated.flatten(-2).type_as(X)
