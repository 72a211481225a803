"""Train the stand-in checkpoint: a small GPT-2 for machines that cannot have the released one.

    make stand-in          or: python book/_scripts/stand_in.py [--steps N] [--out FOLDER]

It takes some minutes on one core, needs the text of *The Time Machine* (d2lgpt.files says
where that is looked for), and writes into d2lgpt/data/

- gpt2-stand-in.safetensors: the model in the layout of the released file, in half precision, and
- held-out.txt: how the book's last chapter begins, a page that the model has not seen.

The last 20,000 characters of the book are held out. The size of the model and the constants below
were chosen by the loss on them, so that the perplexity is a little too good to compare models by.
It is meant to tell a right load from a wrong one.

The vocabulary has 50,257 tokens, the book some 6,000 of them, and half of those occur once. So the
model is trained over the tokens that occur twice or more, and a single token for all others, which
stand for each other in the text. In the file they are tens of thousands of equal rows. Equal rows
have equal probabilities, hence the constant in the softmax, the logarithm of their number.
"""

import argparse
import datetime
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from d2lgpt.checkpoint import GPT_NAMES, held_out_path, stand_in_path, write_gpt2
from d2lgpt.corpus import TIME_MACHINE, decode
from d2lgpt.files import find
from d2lgpt.progress import progress_bar
from d2lgpt.tokenizer import gpt2_tokenizer
from d2lgpt.torch.gpt import GPT
from d2lgpt.torch.loading import load_gpt2

CFG = {
    "vocab_size": 50257,
    "context_length": 128,
    "emb_dim": 64,
    "n_heads": 4,
    "n_layers": 3,
    "drop_rate": 0.1,
    "qkv_bias": True,
}
OPTIONS = {"pos": "learned", "norm": "layer", "act": "gelu", "pre_norm": True, "bias": True}
HELD_OUT = 20_000  # characters at the end of the book
EXCERPT = "'So I came back.", "'For a time my brain"  # how it begins, and what comes after it
STEPS, BATCH, SEED = 1600, 4, 0
RATE, WARM_UP, DECAY = 4e-3, 50, 0.3  # AdamW's, with a cosine down to zero


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help=f"default: {STEPS}")
    parser.add_argument("--out", type=Path, default=stand_in_path().parent, help="a folder")
    args = parser.parse_args(arguments)
    try:
        path = find(TIME_MACHINE)
    except FileNotFoundError as error:
        print(f"The stand-in is trained on The Time Machine and no other text. {error}")
        return 1
    book = decode(path.read_bytes())
    seen, held_out = book[:-HELD_OUT], book[-HELD_OUT:]
    start, end = map(held_out.index, EXCERPT)
    excerpt = held_out[start:end].rstrip() + "\n"

    ids = np.array(gpt2_tokenizer().encode(seen))
    tokens, counts = np.unique(ids, return_counts=True)
    tokens = tokens[counts > 1]
    torch.manual_seed(SEED)
    model = train(ids, tokens, args.steps)

    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / held_out_path().name).write_text(excerpt, encoding="utf-8", newline="\n")
    target = args.out / stand_in_path().name
    texts = {"seen": seen[:HELD_OUT], "held out": held_out, "excerpt": excerpt}
    with tempfile.TemporaryDirectory(dir=args.out) as folder:  # measured as it will be loaded
        draft = write(Path(folder) / target.name, model, tokens, {})
        loaded = load_gpt2(gpt(CFG["vocab_size"]), draft)
        measured = {name: perplexity(loaded, text) for name, text in texts.items()}
    write(target, model, tokens, provenance(args.steps, measured))
    print(f"{target}: {target.stat().st_size:,} bytes")
    print(*(f"perplexity, {name}: {value:.1f}" for name, value in measured.items()), sep="\n")
    return 0


def gpt(vocab_size: int) -> GPT:
    sizes = [CFG[key] for key in ("emb_dim", "n_heads", "n_layers")]
    rest = {"max_len": CFG["context_length"], "dropout": CFG["drop_rate"]}
    return GPT(vocab_size, *sizes, **OPTIONS, **rest)


def train(ids: np.ndarray, tokens: np.ndarray, steps: int) -> GPT:
    """A model of `tokens` and, as the last of its vocabulary, one for all others."""
    others = len(tokens)
    number = np.full(CFG["vocab_size"], others)
    number[tokens] = np.arange(others)
    text = number[ids]
    weight = torch.zeros(others + 1)
    weight[others] = math.log(CFG["vocab_size"] - others)

    model = scatter(gpt(others + 1)).train()
    dropout = nn.Dropout(CFG["drop_rate"])  # GPT-2 has it here too
    model.token_emb.register_forward_hook(lambda module, inputs, output: dropout(output))
    decay = {True: [], False: []}
    for name, parameter in model.named_parameters():
        decay[parameter.ndim > 1 and name != "pos_emb.weight"].append(parameter)
    groups = [
        {"params": decay[True], "weight_decay": DECAY},
        {"params": decay[False], "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda i: min(1, (i + 1) / WARM_UP) * (1 + math.cos(math.pi * i / steps)) / 2,
    )
    windows = np.lib.stride_tricks.sliding_window_view(text, CFG["context_length"] + 1)
    rng = np.random.default_rng(SEED)
    bar = progress_bar(range(steps), total=steps)
    for step in bar:
        batch = torch.tensor(windows[rng.integers(len(windows), size=BATCH)])
        logits = model(batch[:, :-1]) + weight
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            bar.set_postfix(loss=f"{loss:.2f}")
    return model


def scatter(model: GPT) -> GPT:
    """Start scales, shifts and biases anywhere rather than at one and zero, and positions far out.

    The model learns to live with them, and then not without them. Left where they usually start,
    most would hardly move in so short a training, and to forget them in loading would not show.
    """
    with torch.no_grad():
        model.pos_emb.weight.normal_(std=0.1)
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(std=0.5)
                if "norm" in name and name.endswith("weight"):
                    parameter.exp_()
    return model


def write(path: Path, model: GPT, tokens: np.ndarray, metadata: dict[str, str]) -> Path:
    """The file: all 50,257 rows, and everything under the name that the release gives it."""
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    row = np.full(CFG["vocab_size"], len(tokens))
    row[tokens] = np.arange(len(tokens))

    def tensor(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if len(shape) == 4:
            return np.tri(shape[-1]).reshape(shape)
        layer, _, kind = name.rpartition(".")
        if layer.startswith("h."):
            _, i, rest = layer.split(".", 2)
            value = weights[f"{GPT_NAMES[f'h.{{}}.{rest}'].format(i)}.{kind}"]
            return value.T if value.ndim == 2 else value  # (in, out)
        value = weights[f"{GPT_NAMES[layer]}.{kind}"]
        return value[row] if layer == "wte" else value

    return write_gpt2(path, CFG, tensor, "F16", {"n_heads": str(CFG["n_heads"]), **metadata})


def provenance(steps: int, measured: dict[str, float]) -> dict[str, str]:
    libraries = {"Python": sys.version.split()[0], "torch": torch.__version__}
    return {
        "what": "the stand-in of d2lgpt: a small GPT-2 in the layout of the released one",
        "made by": f"python book/_scripts/stand_in.py --steps {steps}",
        "text": f"{TIME_MACHINE.name}, SHA-1 {TIME_MACHINE.sha1}, all but the last "
        f"{HELD_OUT:,} characters",
        "seed": str(SEED),
        "with": ", ".join(f"{name} {version}" for name, version in libraries.items()),
        "date": datetime.date.today().isoformat(),
        **{f"perplexity, {name}": f"{value:.1f}" for name, value in measured.items()},
    }


def perplexity(model: GPT, text: str) -> float:
    """exp of the mean loss per token, over windows that do not overlap."""
    ids = torch.tensor(gpt2_tokenizer().encode(text))
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(ids) - 1, CFG["context_length"]):
            window = ids[start : start + CFG["context_length"] + 1]
            total += F.cross_entropy(model(window[None, :-1])[0], window[1:], reduction="sum")
    return math.exp(total / (len(ids) - 1))


if __name__ == "__main__":
    torch.set_num_threads(1)  # so that sums come out the same, whatever else the machine does
    sys.exit(main())
