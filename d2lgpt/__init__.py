"""d2lgpt: the code that the chapters of *Build a GPT twice* share.

Importing this package loads no framework. Ask for the backend that you want:

    from d2lgpt.torch.scratch import GPTModel     # PyTorch
    from d2lgpt.jax.scratch import GPTModel       # Flax NNX

The rooms that belong to neither (configuration, tokenizer, parity, ...) are modules at this level.
"""

__version__ = "0.1.0"


def load_ipython_extension(shell) -> None:
    """`%load_ext d2lgpt` in a notebook: `%%pytorch`, `%%jax` and the figure style."""
    from d2lgpt import figures, notebook

    notebook.load(shell)
    figures.use_style()
