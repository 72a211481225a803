"""The exercises of chapter 5: the transformer block."""

import math
from collections.abc import Iterable
from itertools import combinations

import numpy as np

from d2lgpt.exercises.backends import Backend
from d2lgpt.exercises.desk import Exercise
from d2lgpt.exercises.forms import WrongForm
from d2lgpt.exercises.judges import another_shape, compared, numbers_in_order, returned, tried
from d2lgpt.exercises.sizes import ATTENTION, FEED_FORWARD, D
from d2lgpt.parameters import Parameter, Stored, pair, parameters, write

SMALL = {  # all numbers differ, so that a mix-up shows
    "vocab_size": 5,
    "context_length": 7,
    "emb_dim": 6,
    "n_heads": 3,
    "n_layers": 2,
    "qkv_bias": True,
}
#: Where a rate may act, in the words of the hints; a rate of 1 silences the place altogether.
EMBEDDINGS, WEIGHTS = "the embeddings", "the attention weights"
AFTER_ATTENTION, AFTER_FEED_FORWARD = "what attention adds", "what the feed-forward network adds"
PLACES = {
    "drop_rate_emb": {EMBEDDINGS},
    "drop_rate_shortcut": {AFTER_ATTENTION, AFTER_FEED_FORWARD},
    "drop_rate_attn": {WEIGHTS},  # last: it makes no difference where attention adds nothing
}
#: The attributes with parameters, and what is said where some have none yet.
ATTRIBUTES = ("tok_emb", "pos_emb", "trf_blocks", "final_norm", "out_head")
PLACEHOLDERS = {
    "trf_blocks": "the blocks are still placeholders: put your `TransformerBlock` in their place",
    "final_norm": "`final_norm` is still the placeholder: make it a `LayerNorm`",
}
ALL_PLACES = (EMBEDDINGS, WEIGHTS, AFTER_ATTENTION, AFTER_FEED_FORWARD)


def _shapes() -> dict[str, tuple[int, ...]]:
    """The parameters of a `GPTModel` of the small size, named and oriented as in PyTorch."""
    vocab_size, length, d = SMALL["vocab_size"], SMALL["context_length"], SMALL["emb_dim"]
    linear = {"att.W_query": (d, d), "att.W_key": (d, d), "att.W_value": (d, d)}
    linear |= {"att.out_proj": (d, d), "ff.layers.0": (4 * d, d), "ff.layers.2": (d, 4 * d)}
    shapes = {"tok_emb.weight": (vocab_size, d), "pos_emb.weight": (length, d)}
    for block in (f"trf_blocks.{n}." for n in range(SMALL["n_layers"])):
        shapes |= {f"{block}{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{block}{name}.bias": shape[:1] for name, shape in linear.items()}
        norms = [f"{block}norm{n}.{part}" for n in (1, 2) for part in ("scale", "shift")]
        shapes |= dict.fromkeys(norms, (d,))
    shapes |= {"final_norm.scale": (d,), "final_norm.shift": (d,)}
    return shapes | {"out_head.weight": (vocab_size, d)}


def _logits(weights: dict, ids: np.ndarray, silent: Iterable[str] = ()) -> np.ndarray:
    """What a `GPTModel` of these weights answers, with zeros in the silent places."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return weights[f"{name}.scale"] * x + weights[f"{name}.shift"]

    def heads(name: str, x: np.ndarray) -> np.ndarray:
        return linear(name, x).reshape(*ids.shape, SMALL["n_heads"], -1).swapaxes(1, 2)

    def attention(name: str, x: np.ndarray) -> np.ndarray:
        q, k, v = (heads(f"{name}.W_{part}", x) for part in ("query", "key", "value"))
        scores = np.tril(np.exp(q @ k.swapaxes(-2, -1) / math.sqrt(q.shape[-1])))
        mix = scores / scores.sum(-1, keepdims=True) * (WEIGHTS not in silent)
        return linear(f"{name}.out_proj", (mix @ v).swapaxes(1, 2).reshape(x.shape))

    def feed_forward(name: str, x: np.ndarray) -> np.ndarray:
        h = linear(f"{name}.layers.0", x)
        h = h / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
        return linear(f"{name}.layers.2", h)

    x = weights["tok_emb.weight"][ids] + weights["pos_emb.weight"][: ids.shape[1]]
    x = x * (EMBEDDINGS not in silent)
    for block in (f"trf_blocks.{n}" for n in range(SMALL["n_layers"])):
        added = attention(f"{block}.att", norm(f"{block}.norm1", x))
        x = x + added * (AFTER_ATTENTION not in silent)
        added = feed_forward(f"{block}.ff", norm(f"{block}.norm2", x))
        x = x + added * (AFTER_FEED_FORWARD not in silent)
    return linear("out_head", norm("final_norm", x))


def _same(got: tuple[np.ndarray, float], wanted: np.ndarray, others: Iterable = ()) -> bool:
    """Whether logits, given with their rounding, are the wanted ones rather than others."""
    return compared(*got, wanted, [(other, "") for other in others], operations=32) is None


def _and(places: Iterable[str]) -> str:
    return " and ".join(place for place in ALL_PLACES if place in places)


def _acts_elsewhere(rate: str, got: tuple[np.ndarray, float], outcomes: dict) -> str:
    """What a model does that is not right when one rate is 1 and the others are 0."""
    wanted = PLACES[rate]
    matches = [places for places, logits in outcomes.items() if _same(got, logits)]
    found = min(matches, key=lambda places: len(places ^ wanted), default=None)
    if found is None:
        return f"`{rate}` does not act, or not only, on {_and(wanted)}"
    if not found:
        return f"`{rate}` is ignored: with 1 instead of 0, nothing changes in training mode"
    if found > wanted and rate == "drop_rate_shortcut" and EMBEDDINGS in found:
        return f"`{rate}` silences the shortcut too: drop what a sub-layer adds, and not the sum"
    if found > wanted:
        return f"`{rate}` acts on {_and(wanted)}, as it should, but also on {_and(found - wanted)}"
    if found < wanted:
        return f"`{rate}` acts on {_and(found)}, but not on {_and(wanted - found)}"
    return f"`{rate}` acts on {_and(found)} instead of {_and(wanted)}"


def _other_parameters(model) -> str | None:
    """The hint for a model that has not the parameters of a `GPTModel`."""
    wanted, found = _shapes(), parameters(model)
    given = {name: p.shape for p in found for name in p.names}
    for tied in (sorted(p.names & set(wanted)) for p in found):
        if len(tied) > 1:
            return f"`{tied[0]}` and `{tied[1]}` are one matrix: here each layer has its own"
    elsewhere = [name for name in given if name.partition(".")[0] not in ATTRIBUTES]
    for part, placeholder in PLACEHOLDERS.items():
        if not any(name.startswith(part) for name in given):
            if elsewhere:
                return (
                    f"it has the parameter `{elsewhere[0]}`, but none in `{part}`: keep the "
                    "attribute names of the chapters"
                )
            return placeholder
    for name, shape in wanted.items():
        if name not in given:
            return f"it lacks the parameter `{name}` (in PyTorch's terms): keep the attribute names"
        if given[name] != shape:
            return f"`{name}` has the shape {given[name]}, but {shape} follows from `cfg`"
    extra = next((name for name in given if name not in wanted), None)
    return extra and f"it has the parameter `{extra}`, and the model of the book has not"


def _try_three_rates(answer, backend: Backend, rng: np.random.Generator) -> str | None:
    """Whether a class is a GPT in which each of three dropout rates acts in its own place."""
    if not isinstance(answer, type):
        raise WrongForm("a model" if backend.is_module(answer) else "a function")
    if not backend.is_module(answer):
        raise WrongForm("a class that is no module of either backend")
    weights = {
        name: rng.normal(scale=0.7, size=shape).astype(np.float32)
        for name, shape in _shapes().items()
    }
    ids = rng.integers(0, SMALL["vocab_size"], size=(2, SMALL["context_length"])).astype(np.int32)

    def new(**rates: float):
        cfg = {**SMALL, **dict.fromkeys(PLACES, 0.0), **rates}
        return answer(cfg, **backend.rngs())

    def filled(**rates: float):
        """A model of the given weights; in JAX, made without drawing any, which takes long."""
        try:
            model = _fill(backend.without_values(lambda: new(**rates)), weights)
        except Exception:  # it holds more than parameters and random streams
            model = _fill(new(**rates), weights)
        model.train()
        return model

    def logits(model) -> tuple[np.ndarray, float]:
        return returned(model(backend.array(ids)), backend)

    try:
        problem = _other_parameters(backend.without_values(new))
    except KeyError as error:
        if error.args == ("drop_rate",):
            return "it reads `drop_rate`, which `cfg` no longer has: three others have its place"
        raise
    except ValueError as error:
        if "the configuration" in str(error):
            return "`check_config` knows only its own entries, and refuses the new ones: drop it"
        raise
    if problem:
        return problem
    plain = _logits(weights, ids)
    model = filled()
    model.eval()
    if problem := another_shape((got := logits(model))[0], plain):
        return problem
    if not _same(got, plain):
        return (
            "with given weights and without dropout its logits are not those of the model that "
            "chapter 6 builds: compare each line of `forward` with the drawing of the block"
        )
    model.train()
    if not _same(logits(model), plain):
        return "with all three rates 0, something is still dropped in training mode"

    kinds = [frozenset(kind) for n in range(5) for kind in combinations(ALL_PLACES, n)]
    outcomes = {kind: _logits(weights, ids, kind) for kind in kinds}
    for rate, places in PLACES.items():
        model = filled(**{rate: 1.0})
        got = logits(model)
        if not _same(got, outcomes[frozenset(places)], outcomes.values()):
            return _acts_elsewhere(rate, got, outcomes)
        model.eval()
        if not _same(logits(model), plain):
            return f"evaluation mode has to switch dropout off, and `{rate}` still acts"

    backend.dry_run(filled(**dict.fromkeys(PLACES, 0.5)), backend.array(ids))
    return None


def _fill(model, weights: dict[str, np.ndarray]):
    stored = [
        Parameter(name, Stored(value.shape, lambda value=value: value), False, {name})
        for name, value in weights.items()
    ]
    write(model, pair(stored, parameters(model)))
    return model


EXERCISES = (
    Exercise(
        "5.1",
        "Where a block keeps its parameters",
        "two whole numbers: the feed-forward part, then the attention part",
        numbers_in_order(
            [FEED_FORWARD, ATTENTION],
            wrong={
                (8 * D * D, 4 * D * D): "all biases are forgotten",
                (FEED_FORWARD, ATTENTION + 3 * D): (
                    "query, key and value have no biases in this configuration (qkv_bias)"
                ),
                (FEED_FORWARD, 4 * D * D): "the output projection of attention has a bias",
                (8 * D * D + 4 * D, ATTENTION): "the second linear layer has a bias too",
                (FEED_FORWARD, 3 * D * D): (
                    "attention has four matrices: what follows the heads is the fourth"
                ),
            },
            names=("ff", "att"),
        ),
        ("The feed-forward part widens fourfold and narrows again, each time with a bias.",),
    ),
    Exercise(
        "5.2",
        "Three dropout rates",
        "the class ThreeRatesGPT, of either backend",
        tried(_try_three_rates, classes=True),
        (
            "Three classes make a dropout layer: which entry of `cfg` should each of them read?",
            "`MultiHeadAttention` gets its rate as an argument: it can stay as it is.",
            "Only the constructors change. Both `forward`s are those of the chapters.",
        ),
    ),
)
