"""Checks at the doors of the models: the same errors in both backends.

JAX clamps an index that is out of range, or fills in NaN, without a word, and PyTorch answers
with an IndexError deep inside an embedding (on a GPU: with a stopped device). Both backends ask
here first.

Shapes and dtypes are known even while JAX traces a function, so they are checked at every call.
The ids themselves are checked where looking at them is free: in the memory of the CPU. A GPU would
have to finish its work first, so there a forward pass, and with it a training step, looks at no
value. The functions that generate text look once, at the prompt, wherever it is.
"""

import sys
from numbers import Real

from d2lgpt.config import check_config, check_rate, check_whole, plain

__all__ = [
    "check_backend",
    "check_cache",
    "check_choice",
    "check_config",
    "check_generation",
    "check_heads",
    "check_length",
    "check_lengths",
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


def check_heads(width: int, num_heads: int, dropout: float, name: str = "num_hiddens") -> None:
    """Raise ValueError unless `num_heads` heads share the width evenly; `name` is its argument."""
    check_whole("num_heads", num_heads)
    check_whole(name, width)
    if width % num_heads:
        raise ValueError(
            f"num_heads must divide {name}: {width} is not a multiple of {num_heads} heads"
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
            f"rotary positions rotate pairs of entries: the width of a head must be even, "
            f"not {head_dim}"
        )


def check_token_ids(ids, table, context_length: int, wait: bool = False) -> None:
    """Raise unless `ids` is a batch of token ids that a model can take.

    Args:
        ids: (batch, tokens), int32 or int64, an array of the model's backend (NNX takes NumPy's
            too). No smaller integers: PyTorch looks none up, and a token that is generated would
            not fit into them.
        table: the model's token embedding, `nn.Embedding` or `nnx.Embed`. Ids must lie in
            [0, table.num_embeddings). With None, any id will do, from either backend.
        context_length: the most tokens of a row.
        wait: also look at ids on a GPU, which has to finish its work first. Ids are never looked
            at where they are unknown: while JAX traces, PyTorch compiles or maps over a batch
            (`vmap`), and on the meta device.

    Raises:
        ValueError: for another number of axes, an empty batch, an empty or too long row, an id
            out of range.
        TypeError: for a list, an array of another dtype, and one of the other backend.
    """
    if not hasattr(ids, "dtype"):
        raise TypeError(
            "token ids must be an array, for example torch.tensor([[1, 2]]) or "
            f"jnp.array([[1, 2]]), not a {type(ids).__name__}"
        )
    check_backend("token ids", ids, table)
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
    vocab_size = getattr(table, "num_embeddings", sys.maxsize)
    bounds = _bounds(ids, wait)
    if bounds and not (bounds[0] >= 0 and bounds[1] < vocab_size):
        wrong = bounds[0] if bounds[0] < 0 else bounds[1]
        known = "" if table is None else f": ids run from 0 to {vocab_size - 1}"
        raise ValueError(f"token id {wrong} is outside the vocabulary{known}")


def check_backend(name: str, array, module) -> None:
    """Raise TypeError if `array` belongs to the other backend than `module`, a layer of a model."""
    torch, nnx = sys.modules.get("torch"), sys.modules.get("flax.nnx")
    is_tensor = torch is not None and isinstance(array, torch.Tensor)
    if torch is not None and isinstance(module, torch.nn.Module) and not is_tensor:
        raise TypeError(
            f"this model is in PyTorch and takes {name} as a torch.Tensor, not as "
            f"{_a(array)}: torch.tensor(np.asarray(ids)) makes one"
        )
    if nnx is not None and isinstance(module, nnx.Module) and is_tensor:
        raise TypeError(
            f"this model is in JAX and takes {name} as a jax.Array, not as {_a(array)}: "
            "jnp.array(ids.cpu().numpy()) makes one"
        )


def _a(array) -> str:
    """What an array is called in a message."""
    kind = type(array)
    name = f"{kind.__module__.partition('.')[0].removesuffix('lib')}.{kind.__name__}"
    return "a jax.Array" if name.startswith("jax.") else f"a {name}"


def _bounds(ids, wait: bool) -> tuple[int, int] | None:
    """The least and the greatest id, or None where they cannot be read, or not without waiting."""
    if not _has_values(ids) or not (wait or _on_cpu(ids)):
        return None
    try:
        return int(ids.min()), int(ids.max())
    except RuntimeError:  # PyTorch maps over a batch (vmap), or only pretends to compute
        return None


def _on_cpu(ids) -> bool:
    """Whether an array of any kind lies in the memory of the CPU."""
    if hasattr(ids, "devices"):  # JAX
        return all(device.platform == "cpu" for device in ids.devices())
    return getattr(getattr(ids, "device", None), "type", "cpu") == "cpu"  # PyTorch; NumPy


def check_generation(ids, max_new_tokens: int, context_size: int, model=None) -> tuple[int, int]:
    """`max_new_tokens` and `context_size` as Python's integers, if a prompt can be continued so.

    The prompt may be longer than the context: the model sees its last `context_size` tokens.
    If the model has tables `tok_emb` and `pos_emb`, they bound the ids and the context.

    Raises:
        ValueError, TypeError: as `check_token_ids`; and for sizes that are none.
    """
    max_new_tokens = check_whole("max_new_tokens", max_new_tokens, least=0)
    context_size = check_whole("context_size", context_size)
    positions = getattr(getattr(model, "pos_emb", None), "num_embeddings", context_size)
    if context_size > positions:
        raise ValueError(
            f"context_size must not exceed the model's context length, {positions}, "
            f"but is {context_size}"
        )
    check_token_ids(ids, getattr(model, "tok_emb", None), sys.maxsize, wait=True)
    return max_new_tokens, context_size


def check_prefix(prefix, num_tokens: int, table) -> int:
    """`num_tokens` as Python's integer, if a prefix of any length can be continued by so many.

    Raises:
        ValueError, TypeError: as `check_token_ids`; and for a number of tokens that is none.
    """
    num_tokens = check_whole("num_tokens", num_tokens, least=0)
    check_token_ids(prefix, table, sys.maxsize, wait=True)
    return num_tokens


def check_sampling(temperature: float, top_k: int | None) -> tuple[float, int | None]:
    """`temperature` and `top_k` as Python's numbers, if tokens can be drawn with them.

    Scalar arrays of either backend are numbers too. A temperature that JAX traces is returned as
    it is and not looked at: check it before.

    Raises:
        ValueError: for a negative or NaN temperature, a top_k that is no positive whole number.
    """
    number = plain(temperature)
    is_number = isinstance(number, Real) and not isinstance(number, bool)
    if _has_values(temperature):
        if not (is_number and number >= 0):
            raise ValueError(
                f"temperature must be a number of at least 0, not {temperature!r}: "
                "0 takes the most probable token, 1 draws by the model's own probabilities"
            )
        number = float(number)
    return number, None if top_k is None else check_whole("top_k", top_k)


def check_lengths(lengths, batch: int, longest: int) -> list[int]:
    """How many tokens each prompt of a batch has, as integers; `longest` for all if None.

    Raises:
        ValueError: unless there is a whole number from 1 to `longest` for each.
    """
    if lengths is None:
        return [longest] * batch
    lengths = lengths.tolist() if hasattr(lengths, "tolist") else list(lengths)
    if len(lengths) != batch:
        raise ValueError(f"lengths must be one for each of {batch} prompts, not {len(lengths)}")
    for length in lengths:
        check_whole("the length of a prompt", length)
        check_length(length, longest)
    return lengths


def check_cache(length: int, max_len: int) -> None:
    """Raise ValueError unless a text of `length` tokens, all new ones included, fits the model."""
    if length > max_len:
        raise ValueError(
            f"prompt and new tokens are {length} together, but the model sees {max_len}, and a "
            "cache cannot slide along a text: what it remembers of later tokens depends on the "
            "first ones. Ask for fewer tokens, or generate with cache=False"
        )


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
    """Whether there is anything to read here, without breaking a trace or a compilation."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and isinstance(ids, torch.Tensor):
        busy = torch.compiler.is_compiling() or torch.jit.is_tracing()
        return not (ids.is_meta or busy)
    if jax is not None and isinstance(ids, (jax.core.Tracer, jax.ShapeDtypeStruct)):
        return False
    return True
