"""Checks at the doors of the models: the same errors in both backends.

JAX clamps an index that is out of range, or fills in NaN, without a word, and PyTorch answers
with an IndexError deep inside an embedding (on a GPU: with a stopped device). Both backends ask
here first. Shapes are known even while JAX traces a function, so they are always checked; values
are checked wherever they are there to be looked at.
"""

import sys
from numbers import Real

from d2lgpt.config import check_config, check_rate, check_whole

__all__ = [
    "check_choice",
    "check_config",
    "check_generation",
    "check_heads",
    "check_length",
    "check_no_nan",
    "check_prefix",
    "check_rotary",
    "check_sampling",
    "check_token_ids",
]


def check_length(length: int, context_length: int) -> None:
    """Raise ValueError unless a sequence of `length` tokens fits the context."""
    if length < 1:
        raise ValueError("the sequence is empty: give at least one token")
    if length > context_length:
        raise ValueError(
            f"the sequence has {length} tokens, but the context length is {context_length}: "
            "crop the input or raise context_length"
        )


def check_heads(d_out: int, num_heads: int, dropout: float) -> None:
    """Raise ValueError unless `num_heads` heads share the width `d_out` evenly."""
    check_whole("num_heads", num_heads)
    check_whole("d_out", d_out)
    if d_out % num_heads:
        raise ValueError(
            f"num_heads must divide d_out: {d_out} is not a multiple of {num_heads} heads"
        )
    check_rate("dropout", dropout)


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the choices for `name`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")


def check_rotary(head_dim: int) -> None:
    """Raise ValueError unless the numbers of a head can be taken in pairs."""
    if head_dim % 2:
        raise ValueError(
            f"rotary positions turn pairs of numbers: the width of a head must be even, "
            f"not {head_dim}"
        )


def check_token_ids(ids, vocab_size: int, context_length: int) -> None:
    """Raise unless `ids` is a batch of token ids that a model can take.

    Args:
        ids: (batch, tokens), int32 or int64, an array of either backend. No smaller integers:
            PyTorch looks none up, and a token that is generated would not fit into them.
        vocab_size: ids must lie in [0, vocab_size). Not checked where the values are unknown:
            while JAX traces or PyTorch compiles, and on the meta device.
        context_length: the most tokens of a row.

    Raises:
        ValueError: for another number of axes, an empty batch, an empty or too long row, an id
            out of range.
        TypeError: for a list, and for an array of another dtype.
    """
    if not hasattr(ids, "dtype"):
        raise TypeError(
            "token ids must be an array, for example torch.tensor([[1, 2]]) or "
            f"jnp.array([[1, 2]]), not a {type(ids).__name__}"
        )
    if len(ids.shape) != 2:
        raise ValueError(
            f"token ids must have the shape (batch, tokens), not {tuple(ids.shape)}: "
            "stack sequences, or add a batch axis with ids[None]"
        )
    if str(ids.dtype).removeprefix("torch.") not in ("int32", "int64"):
        raise TypeError(f"token ids must be int32 or int64 integers, not {ids.dtype}")
    if ids.shape[0] == 0:
        raise ValueError("the batch is empty: give at least one sequence")
    check_length(ids.shape[1], context_length)
    if _has_values(ids):
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= vocab_size:
            raise ValueError(
                f"token id {low if low < 0 else high} is outside the vocabulary: "
                f"ids run from 0 to {vocab_size - 1}"
            )


def check_generation(ids, max_new_tokens: int, context_size: int, model=None) -> None:
    """Raise ValueError unless a prompt of ids can be continued by `max_new_tokens` tokens.

    The prompt may be longer than the context: the model sees its last `context_size` tokens.
    If the model has tables `tok_emb` and `pos_emb`, they bound the ids and the context.
    """
    check_whole("max_new_tokens", max_new_tokens, least=0)
    check_whole("context_size", context_size)
    positions = getattr(getattr(model, "pos_emb", None), "num_embeddings", context_size)
    if context_size > positions:
        raise ValueError(
            f"context_size must not exceed the model's context length, {positions}, "
            f"but is {context_size}"
        )
    vocab_size = getattr(getattr(model, "tok_emb", None), "num_embeddings", sys.maxsize)
    check_token_ids(ids, vocab_size, context_length=sys.maxsize)


def check_prefix(prefix, num_tokens: int, vocab_size: int) -> None:
    """Raise unless a prefix of token ids, of any length, can be continued by `num_tokens` tokens.

    Raises:
        ValueError, TypeError: as `check_token_ids`; and for a number of tokens that is none.
    """
    check_whole("num_tokens", num_tokens, least=0)
    check_token_ids(prefix, vocab_size, context_length=sys.maxsize)


def check_sampling(temperature: float, top_k: int | None) -> None:
    """Raise ValueError unless tokens can be drawn at this temperature, from the `top_k` largest.

    A temperature that JAX traces is not looked at: check it before.
    """
    number = isinstance(temperature, Real) and not isinstance(temperature, bool)
    if _has_values(temperature) and not (number and temperature >= 0):
        raise ValueError(
            f"temperature must be a number of at least 0, not {temperature!r}: "
            "0 takes the most probable token, 1 draws by the model's own probabilities"
        )
    if top_k is not None:
        check_whole("top_k", top_k)


def check_no_nan(has_nan: bool) -> None:
    """Raise ValueError if the probabilities hold a NaN: no token may be chosen by them.

    A softmax gives NaN if there is a NaN among the logits, or plus infinity.
    """
    if has_nan:
        raise ValueError(
            "the logits hold NaN (not a number) or infinity: the weights are broken, for example "
            "by a training run that diverged or a file that was loaded wrongly"
        )


def _has_values(ids) -> bool:
    """Whether the numbers of `ids` can be read here, without breaking a trace or a compilation."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(ids, torch.Tensor):
        return not (ids.is_meta or torch.compiler.is_compiling())
    if jax is not None and isinstance(ids, (jax.core.Tracer, jax.ShapeDtypeStruct)):
        return False
    return True
