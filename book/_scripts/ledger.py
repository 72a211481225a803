"""Compute every published figure again, in both backends, and write what came out.

book/facts.json holds what was published, book/ledger.json what this command found; the page
"Reproduction ledger" shows one beside the other. What is cheap is computed here and now. What
takes the full training budget is taken from the recorded runs (`make record`). What needs the
released GPT-2 file is computed where that file is at hand.
"""

import json
import math
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import d2lgpt.jax.scratch
import d2lgpt.torch.scratch
from d2lgpt import jax as d2lgpt_jax
from d2lgpt import torch as d2lgpt_torch
from d2lgpt.checkpoint import gpt2_file, gpt2_layout
from d2lgpt.config import GPT_CONFIG_124M
from d2lgpt.corpus import preprocess, time_machine
from d2lgpt.parity import copy_weights
from d2lgpt.recorded import recorded
from d2lgpt.tokenizer import gpt2_tokenizer

BOOK = Path(__file__).resolve().parents[1]
LEDGER = BOOK / "ledger.json"
GPT2 = {"pos": "learned", "norm": "layer", "act": "gelu", "bias": True}
SCORED = (
    "The Time Machine, by H. G. Wells. The Time Traveller was expounding a recondite matter to us."
)
TURING = "Alan Turing theorized that computers would one day become"


class PyTorch:
    """What the figures need of PyTorch."""

    name = "torch"
    scratch, d2l = d2lgpt.torch.scratch, d2lgpt_torch
    array = staticmethod(torch.as_tensor)

    @staticmethod
    def make(make, *args, **options):
        return make(*args, **options)

    @staticmethod
    def abstract(make, *args, **options):
        with torch.device("meta"):
            return make(*args, **options)

    @staticmethod
    def output_shape(model, ids):
        return model(torch.tensor(ids, device="meta")).shape

    @staticmethod
    def entropy(counts):
        p = torch.tensor(counts, dtype=torch.float64)
        p = p / p.sum()
        return float(-(p * p.log()).sum())

    @staticmethod
    @torch.no_grad()
    def mean_loss(model, ids):
        logits, ids = model(ids[:, :-1]), ids[:, 1:]
        return float(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten()))

    @staticmethod
    def carried(model, make, *args, **options):
        """The model itself: PyTorch draws the numbers."""
        return model


class JAX:
    """The same of Flax NNX."""

    name = "jax"
    scratch, d2l = d2lgpt.jax.scratch, d2lgpt_jax
    array = staticmethod(jnp.asarray)

    @staticmethod
    def make(make, *args, **options):
        return make(*args, **options, rngs=nnx.Rngs(0))

    @staticmethod
    def abstract(make, *args, **options):
        return nnx.eval_shape(lambda: make(*args, **options, rngs=nnx.Rngs(0)))

    @staticmethod
    def output_shape(model, ids):
        return nnx.eval_shape(lambda model, ids: model(ids), model, jnp.array(ids)).shape

    @staticmethod
    def entropy(counts):
        p = jnp.array(counts, dtype=jnp.float32)
        p = p / p.sum()
        return float(-(p * jnp.log(p)).sum())

    @staticmethod
    def mean_loss(model, ids):
        log_probs = jax.nn.log_softmax(model(ids[:, :-1]))
        return -float(jnp.take_along_axis(log_probs, ids[:, 1:, None], -1).mean())

    @staticmethod
    def carried(model, make, *args, **options):
        """A twin of the PyTorch model, with its weights."""
        return copy_weights(model, JAX.abstract(make, *args, **options))


BACKENDS = (PyTorch, JAX)


def to_numpy(array) -> np.ndarray:
    return array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


# ---- What is cheap: fact -> value, in one backend ------------------------------------------------


def cheap(b) -> dict:
    """The value of every cheap figure in a backend; without those whose corpus is missing."""
    return {
        **outline(b),
        **normalization(b),
        **feed_forward(b),
        **gradients(b),
        **shapes(b),
        **census(b),
        **generation(b),
        **language_model(b),
        **entropies(b),
    }


def outline(b) -> dict:
    encode = gpt2_tokenizer().encode
    first, second = encode("Every effort moves you"), encode("Every day holds a")
    model = b.abstract(b.scratch.DummyGPTModel, GPT_CONFIG_124M)
    linear = torch.nn.Linear if b is PyTorch else nnx.Linear
    layer = b.abstract(linear, 2048, 2048)
    weights = layer.weight if b is PyTorch else layer.kernel
    return {
        "tokens.txt1": first,
        "tokens.txt2": second,
        "dummy.shape": list(b.output_shape(model, [first, second])),
        "matrix.params": math.prod(weights.shape),
    }


def normalization(b) -> dict:
    torch.manual_seed(123)
    batch = torch.randn(2, 5)
    layer = torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU())
    if b is JAX:
        layer = copy_weights(layer, nnx.Sequential(nnx.Linear(5, 6, rngs=nnx.Rngs(0)), nnx.relu))
    out = layer(b.array(batch.numpy()))
    rows = to_numpy(out)
    by_hand = (rows - rows.mean(-1, keepdims=True)) / rows.std(-1, ddof=1, keepdims=True)
    norm = b.make(b.scratch.LayerNorm, 6)
    return {
        "ln.out": rows,
        "ln.mean": rows.mean(-1),
        "ln.var": rows.var(-1, ddof=1),
        "ln.hand": by_hand.mean(-1),
        "ln.module.var": to_numpy(norm(out)).var(-1),
    }


def feed_forward(b) -> dict:
    x = np.linspace(-5, 5, 20001, dtype=np.float32)
    exact = torch.nn.functional.gelu(torch.tensor(x), approximate="none").numpy()
    gap = np.abs(to_numpy(b.make(b.scratch.GELU)(b.array(x))) - exact).max()
    ff = b.make(b.scratch.FeedForward, GPT_CONFIG_124M)
    out = ff(b.array(np.ones((2, 3, 768), np.float32)))
    return {"gelu.gap": gap, "ff.shape": list(out.shape)}


def gradients(b) -> dict:
    found = {}
    for name, use_shortcut in (("grad.plain", False), ("grad.shortcut", True)):
        arguments = ([3, 3, 3, 3, 3, 1], use_shortcut)
        torch.manual_seed(123)
        model = PyTorch.scratch.ExampleDeepNeuralNetwork(*arguments)
        if b is JAX:
            twin = b.make(b.scratch.ExampleDeepNeuralNetwork, *arguments)
            model = copy_weights(model, twin)
        found[name] = b.scratch.gradient_means(model, b.array([[1.0, 0.0, -1.0]]))
    return {**found, "grad.ratio": found["grad.plain"][-1] / found["grad.plain"][0]}


def shapes(b) -> dict:
    block = b.make(b.scratch.TransformerBlock, GPT_CONFIG_124M)
    x = b.array(np.random.default_rng(0).random((2, 4, 768), dtype=np.float32))
    model = b.abstract(b.scratch.GPTModel, GPT_CONFIG_124M)
    return {
        "block.shape": list(block(x).shape),
        "gpt.shape": list(b.output_shape(model, [[1, 2, 3, 4]] * 2)),
    }


def census(b) -> dict:
    model = b.abstract(b.scratch.GPTModel, GPT_CONFIG_124M)
    count = b.d2l.count_parameters
    total, head = count(model), count(model.out_head)
    return {
        "census.total": total,
        "census.tied": total - head,
        "census.mb": total * 4 / 1024**2,
        "census.table": count(model.tok_emb),
    }


@cache
def gpt2_of_seed_123():
    torch.manual_seed(123)
    return PyTorch.scratch.GPTModel(GPT_CONFIG_124M).eval()


def generation(b) -> dict:
    prompt = gpt2_tokenizer().encode("Hello, I am")
    model = b.carried(gpt2_of_seed_123(), b.scratch.GPTModel, GPT_CONFIG_124M)
    ids = b.scratch.generate_text_simple(model, b.array([prompt]), 6, 1024)
    ids = to_numpy(ids)[0].tolist()
    return {"gen.prompt": prompt, "gen.ids": ids, "gen.text": gpt2_tokenizer().decode(ids)}


def language_model(b) -> dict:
    count = b.d2l.count_parameters
    model = b.abstract(b.d2l.GPT, 28)
    gpt2 = b.abstract(b.d2l.GPT, 50257, 768, 12, 12, **GPT2)
    layout = gpt2_layout(GPT_CONFIG_124M)
    return {
        "lm.params": count(model),
        "lm.shape": list(b.output_shape(model, [[0] * 16] * 2)),
        "gpt2.params": count(gpt2),
        "gpt2.tokens": gpt2_tokenizer().encode("Attention is all you need."),
        "gpt2.tensors": [len(layout), sum(math.prod(shape) for shape in layout.values())],
    }


def entropies(b) -> dict:
    text, source = time_machine()
    found = {"entropy.uniform": b.entropy([1] * 28)}
    if not source.startswith("The Time Machine"):
        return found
    text = preprocess(text)[: 100_000 + 128]  # what the training windows of the main run cover
    count = {n: list(Counter(part).values()) for n, part in (("one", text), ("first", text[:-1]))}
    pairs = list(Counter(pairwise(text)).values())
    return {
        **found,
        "entropy.unigram": b.entropy(count["one"]),
        # H(next | current) = H(pair) - H(current)
        "entropy.bigram": b.entropy(pairs) - b.entropy(count["first"]),
    }


# ---- What is not --------------------------------------------------------------------------------


def full(b, folder: Path | None = None) -> dict:
    """The figures of the full training budget, as far as runs are recorded and not stale."""
    found = {}
    runs = {name: recorded(name, b.name, folder) for name in ("training", "pre-norm", "post-norm")}
    runs = {name: run for name, run in runs.items() if run and not run.stale}
    if run := runs.get("training"):
        best = int(np.argmin(run.val))
        found |= {
            f"train.{b.name}.best": run.val[best],
            f"train.{b.name}.beststep": run.stops[best],
            f"train.{b.name}.final": [run.train[-1], run.val[-1]],
        }
    if run := runs.get("pre-norm"):
        found[f"norm.{b.name}.pre"] = run.train
    if run := runs.get("post-norm"):
        found["norm.post"] = run.train
    return found


def loaded(b, path: Path, *sizes: int) -> dict:
    """What a GPT-2 file says in a backend: the loss of a sentence, and a greedy continuation.

    `sizes`: vocab_size, num_hiddens, num_heads, num_blks and max_len of the file's model.
    """
    tokenizer = gpt2_tokenizer()
    model = b.d2l.load_gpt2(b.abstract(b.d2l.GPT, *sizes, **GPT2), path)
    loss = b.mean_loss(model, b.array([tokenizer.encode(SCORED)]))
    prompt = tokenizer.encode(TURING)
    ids = to_numpy(model.generate(b.array([prompt]), 16, temperature=0))[0].tolist()
    return {
        "gpt2.loss": loss,
        "gpt2.ppl": math.exp(loss),
        "gpt2.greedy": tokenizer.decode(ids[len(prompt) :]),
    }


def weights(b) -> dict:
    """The figures that need the released GPT-2, if its file is at hand."""
    path, kind = gpt2_file()
    return loaded(b, path, 50257, 768, 12, 12, 1024) if kind == "released" else {}


# ---- The ledger ---------------------------------------------------------------------------------


def plain(value):
    """A value as JSON has it; numbers with as many digits as another machine gives alike."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(v) for v in value]
    value = float(value)
    return int(value) if value.is_integer() else float(f"{value:.7g}") if abs(value) > 1e-6 else 0


def reproduced(fact: dict, value) -> bool:
    """Whether a value is the published one, within the fact's tolerance (none: exactly)."""
    if "abs" in fact or "rel" in fact:
        got, published = np.asarray(value, dtype=float), np.asarray(fact["value"], dtype=float)
        tolerance = fact.get("abs", 0) + fact.get("rel", 0) * np.abs(published)
        return bool(got.shape == published.shape and (np.abs(got - published) <= tolerance).all())
    return value == fact["value"]


WHY_NOT = {
    "full": "needs the full training budget, of which no run is recorded yet",
    "weights": "needs the released GPT-2 file, which was not at hand",
    "cheap": "needs The Time Machine, which was not at hand",
}


def rows(facts: list[dict], values: dict[str, dict]) -> dict:
    """For each fact and backend: the value and whether it is reproduced, or why it was not run."""
    ledger = {}
    for fact in facts:
        ledger[fact["id"]] = row = {}
        for name in ("torch", "jax"):
            if fact["backend"] not in ("both", name):
                continue
            if fact["id"] in values[name]:
                value = values[name][fact["id"]]
                status = "reproduced" if reproduced(fact, value) else "not reproduced"
                row[name] = {"value": value, "status": status}
            else:
                row[name] = {"status": "not run here", "why": WHY_NOT[fact["budget"]]}
    return ledger


def main() -> int:
    facts = json.loads((BOOK / "facts.json").read_text("utf-8"))
    values = {
        b.name: {k: plain(v) for k, v in {**cheap(b), **full(b), **weights(b)}.items()}
        for b in BACKENDS
    }
    ledger = rows(facts, values)
    LEDGER.write_text(json.dumps(ledger, indent=1, ensure_ascii=False) + "\n", "utf-8")
    states = Counter(entry["status"] for row in ledger.values() for entry in row.values())
    print(", ".join(f"{count} {status}" for status, count in states.items()))
    for name, row in ledger.items():
        for backend, entry in row.items():
            if entry["status"] == "not reproduced":
                print(f"{name} in {backend}: {entry['value']}", file=sys.stderr)
    return int(states["not reproduced"] > 0)


if __name__ == "__main__":
    sys.exit(main())
