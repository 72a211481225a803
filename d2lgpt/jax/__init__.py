"""The Flax NNX half of d2lgpt. Its modules, names and their order are those of `d2lgpt.torch`."""

try:
    import jax as _jax  # noqa: F401
    from flax import nnx as _nnx  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"d2lgpt.jax needs {error.name!r}, which is not installed: pip install 'd2lgpt[jax]'"
    ) from None

from d2lgpt.bridge import fall_through as _fall_through
from d2lgpt.data_hub import DATA_HUB, download
from d2lgpt.jax.abstract import abstract_model
from d2lgpt.jax.cache import generate_cached
from d2lgpt.jax.census import count_parameters
from d2lgpt.jax.corpus import TimeMachine
from d2lgpt.jax.gpt import GPT, FeedForward, TransformerBlock
from d2lgpt.jax.loading import load_gpt2
from d2lgpt.jax.modes import eval_mode
from d2lgpt.jax.training import train_lm, val_loss
from d2lgpt.text import print_wrapped
from d2lgpt.tokenizer import BPETokenizer

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
__getattr__, __dir__ = _fall_through(__name__, "d2l.jax")
