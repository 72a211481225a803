"""The configurations of GPT-2: dictionaries from which every module of Part I reads its shape."""

from collections.abc import Mapping
from contextlib import suppress
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
    if not isinstance(size, str) or size not in _SIZES:
        raise ValueError(f"there is no GPT-2 of size {size!r}: choose one of {', '.join(_SIZES)}")
    emb_dim, n_layers, n_heads = _SIZES[size]
    shape = {"emb_dim": emb_dim, "n_layers": n_layers, "n_heads": n_heads}
    return check_config({**GPT_CONFIG_124M, **shape, **overrides})


def check_config(cfg: dict) -> dict:
    """A copy of `cfg` with Python's own numbers, if a model can be built from it.

    Raises:
        ValueError: naming the entry that is missing, unknown or impossible.
        TypeError: if `cfg` is no dictionary.
    """
    if not isinstance(cfg, Mapping):
        raise TypeError(f"a configuration is a dictionary, not a {type(cfg).__name__}")
    missing = [key for key in GPT_CONFIG_124M if key not in cfg]
    unknown = [key for key in cfg if key not in GPT_CONFIG_124M]
    if missing:
        raise ValueError(f"the configuration lacks {', '.join(map(repr, missing))}")
    if unknown:
        raise ValueError(
            f"the configuration has an unknown entry {', '.join(map(repr, unknown))}: "
            f"the entries are {', '.join(GPT_CONFIG_124M)}"
        )
    cfg = {key: plain(value) for key, value in cfg.items()}
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


def check_whole(name: str, value, least: int = 1) -> int:
    """The int that `value` is, a whole number of at least `least`.

    Python's, NumPy's, or a scalar array of either backend. No float, however whole: neither
    Python nor the frameworks count with floats.

    Raises:
        ValueError: for anything else, naming it; also for an array whose value is not known yet,
            as when JAX traces.
    """
    number = plain(value)
    if isinstance(number, Integral) and not isinstance(number, bool) and number >= least:
        return int(number)
    whole = isinstance(number, float) and number.is_integer() and number >= least
    hint = f": write {int(number)}" if whole else ""
    raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}{hint}")


def check_rate(name: str, value) -> float:
    """The float that `value` is, a number from 0 to 1: Python's, NumPy's, or of either backend.

    Raises:
        ValueError: for anything else, naming it.
    """
    number = plain(value)
    if isinstance(number, Real) and not isinstance(number, bool) and 0 <= number <= 1:
        return float(number)
    raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")


def plain(value):
    """Python's number in place of a scalar array of NumPy, PyTorch or JAX; all else as it is."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        # PyTorch and JAX each have errors of their own for a value that is not known yet.
        with suppress(TypeError, RuntimeError):
            return value.item()
    return value
