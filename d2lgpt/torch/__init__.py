"""The PyTorch half of d2lgpt. Its modules, names and their order are those of `d2lgpt.jax`."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        f"d2lgpt.torch needs {error.name!r}, which is not installed: pip install 'd2lgpt[torch]'"
    ) from None

from d2lgpt.torch.census import count_parameters
from d2lgpt.torch.modes import eval_mode

__all__ = ["count_parameters", "eval_mode"]
