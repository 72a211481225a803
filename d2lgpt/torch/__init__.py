"""The PyTorch half of d2lgpt. Its modules, names and their order are those of `d2lgpt.jax`."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"d2lgpt.torch needs {error.name!r}, which is not installed: pip install 'd2lgpt[torch]'"
    ) from None

from d2lgpt.bridge import fall_through as _fall_through
from d2lgpt.data_hub import DATA_HUB, download
from d2lgpt.text import print_wrapped
from d2lgpt.tokenizer import BPETokenizer
from d2lgpt.torch.abstract import abstract_model
from d2lgpt.torch.cache import generate_cached
from d2lgpt.torch.census import count_parameters
from d2lgpt.torch.corpus import TimeMachine
from d2lgpt.torch.gpt import GPT, FeedForward, TransformerBlock
from d2lgpt.torch.loading import load_gpt2
from d2lgpt.torch.modes import eval_mode
from d2lgpt.torch.training import train_lm, val_loss

__all__ = [
    "DATA_HUB",
    "GPT",
    "BPETokenizer",
    "FeedForward",
    "TimeMachine",
    "TransformerBlock",
    "abstract_model",
    "count_parameters",
    "download",
    "eval_mode",
    "generate_cached",
    "load_gpt2",
    "print_wrapped",
    "train_lm",
    "val_loss",
]

# What this project does not define comes from PyPI's d2l: d2l.plot, d2l.show_heatmaps, ...
__getattr__, __dir__ = _fall_through(__name__, "d2l.torch")
