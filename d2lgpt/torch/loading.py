"""Load the released GPT-2 into a model."""

from pathlib import Path

from torch import nn

from d2lgpt.checkpoint import Checkpoint, pair_gpt2
from d2lgpt.parameters import check_module, unwrapped, write


def load_gpt2(model: nn.Module, path: str | Path) -> nn.Module:
    """Load a GPT-2 file into a model, in place, and return it in evaluation mode.

    The file is in the layout of the released ones (`d2lgpt.checkpoint`), with or without masks,
    prefix and `lm_head`, in float32, float16 or bfloat16. Everything is checked before anything
    is written: if loading fails, the model is as it was. A concrete model keeps its
    dtypes and devices.

    The head of a `GPTModel` is the token table afterwards: `out_head.weight is tok_emb.weight`.

    Args:
        model: a `GPTModel` with `qkv_bias=True`, or a `GPT` with GPT-2's options; concrete, or
            abstract (on the "meta" device), which then becomes concrete and takes over
            pages of the file where it can: replace such a file, but do not write into it. It may
            be wrapped by `torch.compile`, `DataParallel` or `DistributedDataParallel`.
        path: a safetensors file.

    Raises:
        FileNotFoundError: if there is no such file (a folder is none).
        TypeError: if the model is no GPT.
        ValueError: for a damaged file, and for one that does not fit the model.
    """
    check_module(model, nn.Module)
    inner = unwrapped(model)
    pairs = pair_gpt2(Checkpoint(path), inner)
    write(inner, pairs)
    if hasattr(inner, "out_head"):
        inner.out_head.weight = inner.tok_emb.weight
    return model.eval()
