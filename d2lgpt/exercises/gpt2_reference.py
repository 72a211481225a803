"""GPT-2 once more, in NumPy: what a file of weights gives, and what it gives with a mistake.

The exercises of chapter 12 are judged by the file that the reader has, so nothing here knows a
result. This module imports neither PyTorch nor JAX.
"""

from collections.abc import Callable

import numpy as np

from d2lgpt.checkpoint import Checkpoint, gpt2_file, gpt2_file_config

#: Takes the name of a tensor and the tensor, and gives what is to be used in its place.
Change = Callable[[str, np.ndarray], np.ndarray]


def perplexity(ids: list[int], change: Change | None = None, norm: str = "layer") -> float:
    """The perplexity of the file's model on all tokens but the first.

    Args:
        ids: token ids, one more than are read.
        change: a mistake in loading; it also sees the thirds of `c_attn` side by side.
        norm: "layer", "rms", or "no shift" for a layer normalization without one.
    """
    path, _ = gpt2_file()
    checkpoint, heads = Checkpoint(path), gpt2_file_config(path)["n_heads"]

    def tensor(name: str) -> np.ndarray:
        value = checkpoint[name].astype(np.float32)
        return value if change is None else change(name, value)

    def linear(X: np.ndarray, name: str) -> np.ndarray:
        return X @ tensor(f"{name}.weight") + tensor(f"{name}.bias")

    def normalized(X: np.ndarray, name: str) -> np.ndarray:
        if norm == "rms":
            root = np.sqrt((X**2).mean(axis=-1, keepdims=True) + 1e-6)
            return X / root * tensor(f"{name}.weight")
        X = X - X.mean(axis=-1, keepdims=True)
        X = X / np.sqrt((X**2).mean(axis=-1, keepdims=True) + 1e-5)
        X = X * tensor(f"{name}.weight")
        return X if norm == "no shift" else X + tensor(f"{name}.bias")

    read, wanted = np.array(ids[:-1]), np.array(ids[1:])
    table = tensor("wte.weight")
    X = table[read] + tensor("wpe.weight")[: len(read)]
    future = np.triu(np.ones((len(read), len(read)), bool), 1)
    for i in range(len({name.split(".")[1] for name in checkpoint.shapes if name[:2] == "h."})):
        QKV = linear(normalized(X, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn")
        Q, K, V = (
            part.reshape(len(read), heads, -1).swapaxes(0, 1) for part in np.split(QKV, 3, axis=-1)
        )
        scores = Q @ K.swapaxes(1, 2) / np.sqrt(Q.shape[-1])
        Y = _softmax(np.where(future, -np.inf, scores)) @ V
        X = X + linear(Y.swapaxes(0, 1).reshape(X.shape), f"h.{i}.attn.c_proj")
        Y = linear(normalized(X, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc")
        Y = 0.5 * Y * (1 + np.tanh(np.sqrt(2 / np.pi) * (Y + 0.044715 * Y**3)))
        X = X + linear(Y, f"h.{i}.mlp.c_proj")
    logits = (normalized(X, "ln_f") @ table.T).astype(np.float64)
    top = logits.max(axis=-1)
    losses = np.log(np.exp(logits - top[:, None]).sum(axis=-1)) + top
    losses -= logits[np.arange(len(wanted)), wanted]
    return float(np.exp(losses.mean()))


def positions() -> np.ndarray:
    """The position table of the file, in float64."""
    return Checkpoint(gpt2_file().path)["wpe.weight"].astype(np.float64)


def _softmax(X: np.ndarray) -> np.ndarray:
    X = np.exp(X - X.max(axis=-1, keepdims=True))
    return X / X.sum(axis=-1, keepdims=True)
