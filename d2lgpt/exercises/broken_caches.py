"""Three caches, each with a bug, for exercise 13.2. It shows their logits only; here is the code.

Reading on is looking the answer up.
"""

from functools import cache
from importlib import import_module

import numpy as np

from d2lgpt.exercises.backends import PYTORCH, Backend
from d2lgpt.parity import copy_weights

SIZES = {"vocab_size": 50, "num_hiddens": 32, "num_heads": 4, "num_blks": 2, "max_len": 32}
PROMPT, NEW = 6, 5  # tokens
KINDS = {"rotary": "rope", "learned": "learned"}  # of positions


def differences(backend: Backend = PYTORCH) -> dict[str, dict[str, tuple[float, float]]]:
    """How far the logits of each cache are from those of a full pass over all tokens.

    Returns:
        For "a", "b" and "c", for a model with "rotary" and one with "learned" positions: the
        largest difference at the positions of the prompt, and at those of the new tokens.
    """
    ids = np.random.default_rng(13).integers(SIZES["vocab_size"], size=(1, PROMPT + NEW))
    found = {}
    for name, (layer, twice) in _bugs(backend).items():
        found[name] = {}
        for kind, pos in KINDS.items():
            model = _model(backend, layer, pos)
            full = backend.numpy(model(backend.array(ids)))
            gap = np.abs(_read_with_cache(backend, model, ids, twice) - full)[0]
            found[name][kind] = float(gap[:PROMPT].max()), float(gap[PROMPT:].max())
    return found


@cache
def _bugs(backend: Backend) -> dict[str, tuple[type, bool]]:
    """An attention layer for each cache, and whether a token of the prompt is read twice.

    A full pass of these layers is right: what is wrong shows with a cache only.
    """
    xp = import_module("torch" if backend is PYTORCH else "jax.numpy")
    rotate = backend.package("rotary").rotate
    Right = backend.package("gpt").GPT.CausalAttention

    class SeesEarlier(Right):
        """A query sees the keys before its own, `<` for `<=`; the first has only itself to see."""

        def attend(self, Q, K, V, visible=None):
            if visible is not None:  # key 0, and each key whose next one is visible
                nowhere = ~visible[..., :1]
                visible = xp.concatenate([~nowhere, visible[..., 2:], nowhere], -1)
            return super().attend(Q, K, V, visible)

    class CountsFromZero(Right):
        """Rotates before the cache can say where the tokens at hand are."""

        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.rotary, self.rope = self.rope, False

        def project(self, X):
            Q, K, V = super().project(X)
            return (rotate(Q), rotate(K), V) if self.rotary else (Q, K, V)

    return {"a": (Right, True), "b": (SeesEarlier, False), "c": (CountsFromZero, False)}


def _model(backend: Backend, layer: type, pos: str):
    """A model with such layers, whose weights are those of seed 13 in PyTorch."""
    torch, GPT = import_module("torch"), PYTORCH.package("gpt").GPT
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(13)
        weights = GPT(**SIZES, pos=pos)
        for name, parameter in weights.named_parameters():
            parameter *= 50 if "emb" in name else 1  # logits of a size that can be seen

    class Model(backend.package("gpt").GPT):
        CausalAttention = layer

    model = copy_weights(
        weights, backend.without_values(lambda: Model(**SIZES, pos=pos, **backend.rngs()))
    )
    return model.requires_grad_(False) if backend is PYTORCH else model


def _read_with_cache(backend: Backend, model, ids: np.ndarray, twice: bool) -> np.ndarray:
    """The logits of all tokens: the prompt is read in one pass, then one new token at a time."""
    cache = backend.package("cache")
    place = cache.Place(backend.array(np.zeros((1, 1), int)))
    twin = cache.with_cache(model, place, room=PROMPT + NEW + 1)

    def read(tokens: np.ndarray, start: int) -> np.ndarray:
        start = backend.array(np.array([[start]]))
        if backend is PYTORCH:
            place.start = start
        else:
            place.start[...] = start
        return backend.numpy(twin(backend.array(tokens)))

    logits = [read(ids[:, :PROMPT], 0)]
    if twice:  # its last token once more, where the first new one should be
        read(ids[:, PROMPT - 1 : PROMPT], PROMPT)
    logits += [read(ids[:, i : i + 1], i + twice) for i in range(PROMPT, PROMPT + NEW)]
    return np.concatenate(logits, axis=1)
