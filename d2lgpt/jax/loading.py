"""Load the released GPT-2 into a model."""

from pathlib import Path

import jax
from flax import nnx

from d2lgpt.checkpoint import Checkpoint, pair_gpt2
from d2lgpt.parameters import check_module, write


class TiedHead(nnx.Module):
    """An output head that is a token table once more: (..., D) -> (..., vocab_size) logits.

    A kernel would be the table transposed, which is another array. This head has no parameter of
    its own but refers to the table, so the two are counted, trained and copied as one.
    """

    def __init__(self, tok_emb: nnx.Embed):
        self.tok_emb = tok_emb

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.tok_emb.attend(x)  # x @ embedding.T


def load_gpt2(model: nnx.Module, path: str | Path) -> nnx.Module:
    """Load a GPT-2 file into a model, in place, and return it in evaluation mode.

    The file is in the layout of the released ones (`d2lgpt.checkpoint`), with or without masks,
    prefix and `lm_head`, in float32, float16 or bfloat16. Everything is checked before anything
    is written: if loading fails, the model is as it was. A concrete model keeps its
    dtypes and devices.

    The head of a `GPTModel` is the token table afterwards: `out_head` becomes a `TiedHead`.

    Args:
        model: a `GPTModel` with `qkv_bias=True`, or a `GPT` with GPT-2's options; concrete, or
            abstract (by `nnx.eval_shape`), which then becomes concrete.
        path: a safetensors file.

    Raises:
        FileNotFoundError: if there is no such file (a folder is none).
        TypeError: if the model is no GPT.
        ValueError: for a damaged file, and for one that does not fit the model.
    """
    check_module(model, nnx.Module)
    pairs = pair_gpt2(Checkpoint(path), model)
    if hasattr(model, "out_head"):  # first, so that the memory of the old head is free by now
        model.out_head = TiedHead(model.tok_emb)
    write(model, pairs)
    model.eval()
    return model
