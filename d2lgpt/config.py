"""The configurations of GPT-2: dictionaries from which every module of Part I reads its shape."""

from numbers import Integral, Real

#: GPT-2 small. Announced with 117 million parameters; the count was corrected to 124 million.
GPT_CONFIG_124M = {
    "vocab_size": 50257,  # entries of the byte-pair vocabulary
    "context_length": 1024,  # most tokens the model can see at once
    "emb_dim": 768,  # width of the vector that stands for a token
    "n_heads": 12,  # attention heads in each block
    "n_layers": 12,  # transformer blocks
    "drop_rate": 0.1,  # share of activations that dropout sets to zero in training
    "qkv_bias": False,  # whether query, key and value projections have a bias
}

# The four released sizes (Radford et al. 2019): width, blocks, heads.
_SIZES = {
    "small": (768, 12, 12),
    "medium": (1024, 24, 16),
    "large": (1280, 36, 20),
    "xl": (1600, 48, 25),
}


def gpt2_config(size: str, **overrides) -> dict:
    """The configuration of one of the four GPT-2 models.

    Args:
        size: "small", "medium", "large" or "xl".
        **overrides: entries to replace, for example `qkv_bias=True` or `drop_rate=0.0`.

    Returns:
        A new dictionary with the entries of `GPT_CONFIG_124M`, checked by `check_config`.

    Raises:
        ValueError: for an unknown size, and for an unknown or impossible entry.
    """
    if size not in _SIZES:
        raise ValueError(f"there is no GPT-2 of size {size!r}: choose one of {', '.join(_SIZES)}")
    emb_dim, n_layers, n_heads = _SIZES[size]
    shape = {"emb_dim": emb_dim, "n_layers": n_layers, "n_heads": n_heads}
    return check_config({**GPT_CONFIG_124M, **shape, **overrides})


def check_config(cfg: dict) -> dict:
    """Return `cfg` unchanged if a model can be built from it.

    Raises:
        ValueError: naming the entry that is missing, unknown or impossible.
    """
    missing = [key for key in GPT_CONFIG_124M if key not in cfg]
    unknown = [key for key in cfg if key not in GPT_CONFIG_124M]
    if missing:
        raise ValueError(f"the configuration lacks {', '.join(map(repr, missing))}")
    if unknown:
        raise ValueError(
            f"the configuration has an unknown entry {', '.join(map(repr, unknown))}: "
            f"the entries are {', '.join(GPT_CONFIG_124M)}"
        )
    for key in ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers"):
        check_whole(key, cfg[key])
    check_rate("drop_rate", cfg["drop_rate"])
    if not isinstance(cfg["qkv_bias"], bool):
        raise ValueError(f"qkv_bias must be True or False, not {cfg['qkv_bias']!r}")
    if cfg["emb_dim"] % cfg["n_heads"]:
        raise ValueError(
            f"n_heads must divide emb_dim: {cfg['emb_dim']} is not a multiple of {cfg['n_heads']}"
        )
    return cfg


def check_whole(name: str, value: int, least: int = 1) -> None:
    """Raise ValueError unless `value` is an int (Python's or NumPy's) of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_rate(name: str, value: float) -> None:
    """Raise ValueError unless `value` is a number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")
