"""The exercises of chapter 12: right answers, and the mistakes people make, on the stand-in."""

import math

import numpy as np
import pytest
import torch
from both import JAX, PYTORCH

from d2lgpt.checkpoint import gpt2_file, gpt2_file_config, gpt2_layout
from d2lgpt.config import GPT_CONFIG_124M
from d2lgpt.exercises import check, gpt2_reference
from d2lgpt.exercises.chapter_12 import SENTENCE, _exchanged, _turned
from d2lgpt.parameters import parameters
from d2lgpt.tokenizer import gpt2_tokenizer

OPTIONS = {"pos": "learned", "norm": "layer", "act": "gelu", "bias": True}


@pytest.fixture(autouse=True)
def the_stand_in(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LGPT_PROGRESS", str(tmp_path / "progress.json"))
    monkeypatch.setenv("D2LGPT_GPT2", "stand-in")


def rejected(id, answer, text):
    verdict = check(id, answer)
    assert not verdict
    assert text in str(verdict)


# --- 12.2b: names ---

UNREAD = ["wpe.weight", "h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.weight"]
GATED = ["W_g.weight", "W_g.bias", "W_1.weight", "W_1.bias", "W_2.weight"]
UNFILLED = [f"blks.0.ffn.{name}" for name in GATED]


@pytest.mark.parametrize("backend", [PYTORCH, JAX], ids=lambda backend: backend.name)
def test_the_lists_are_those_of_the_models(backend):
    """By the names and shapes of an abstract model, in either backend."""
    sizes = [GPT_CONFIG_124M[key] for key in ("vocab_size", "emb_dim", "n_heads")]
    options = {**OPTIONS, "pos": "rope", "act": "swiglu"}
    model = backend.abstract(
        lambda: backend.root.GPT(*sizes, num_blks=1, **options, **backend.rngs())
    )
    shapes = {name: p.shape for p in parameters(model) for name in p.names}
    file = gpt2_layout({**GPT_CONFIG_124M, "n_layers": 1})
    for name in UNFILLED:
        assert name in shapes
        source = name.replace("blks.0.ffn.W_1", "h.0.mlp.c_fc").replace(
            "blks.0.ffn.W_2", "h.0.mlp.c_proj"
        )
        assert sorted(file.get(source, ())) != sorted(shapes[name])
    assert shapes["blks.0.ffn.W_2.bias"] == file["h.0.mlp.c_proj.bias"]
    assert "pos_emb.weight" not in shapes
    assert len(shapes) - len(UNFILLED) == len(file) - len(UNREAD) - 1  # the mask


@pytest.mark.parametrize(
    "answer",
    [
        [UNREAD, UNFILLED],
        (set(UNREAD) | {"h.0.attn.bias"}, tuple(UNFILLED)),
        [
            [name.replace("h.0.", "") for name in UNREAD],
            [name.replace("blks.0.ffn", "blks.layers.3.ffn") for name in UNFILLED],
        ],
        [
            [name.replace("h.0", "transformer.h.{}") for name in UNREAD],
            [name.replace("weight", "kernel").replace(".", "/") for name in UNFILLED],
        ],
        [[f"{name} (768,)" for name in UNREAD], UNFILLED * 2],
    ],
)
def test_ways_to_write_the_names(answer):
    assert check("12.2b", answer)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([UNFILLED, UNREAD], "changed places"),
        ([["wpe.weight"], UNFILLED[:2]], "only if its shape fits"),
        ([[*UNREAD, "h.0.mlp.c_proj.bias"], UNFILLED], "one bias"),
        ([UNREAD, [*UNFILLED, "blks.0.ffn.W_2.bias"]], "one bias"),
        ([UNREAD[1:], UNFILLED], "around the blocks"),
        ([UNREAD, UNFILLED[:2]], "0 names too many and 3 names missing"),
        ([[*UNREAD, "ln_f.bias"], UNFILLED], "1 name too many and 0 names missing"),
        ([UNREAD, [*UNFILLED, "pos_emb.weight"]], "no position table"),
        ([["wpe", "c_fc"], ["W_g", "W_1"]], "whole names"),
        ([[*UNREAD, UNFILLED[0]], UNFILLED], "of tensors of the file"),
        ([UNREAD, [*UNFILLED, UNREAD[0]]], "of parameters of the model"),
        ([[], []], "shape fits"),
        ([UNREAD], "not a list of length 1"),
        (["wpe.weight", "W_g"], "a str in the place of a list of names"),
        ([[1, 2], [3]], "a list with an int in it"),
        (3, "not an int"),
    ],
)
def test_other_names(answer, text):
    rejected("12.2b", answer, text)


# --- 12.2c: perplexities ---


@pytest.fixture(scope="module")
def ids():
    return gpt2_tokenizer().encode(SENTENCE)


@pytest.fixture(scope="module")
def right(ids):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("D2LGPT_GPT2", "stand-in")
        return [
            gpt2_reference.perplexity(ids, norm="rms"),
            gpt2_reference.perplexity(ids, _turned),
            gpt2_reference.perplexity(ids, _exchanged),
        ]


def test_the_reference_is_the_model(ids):
    """NumPy's GPT-2 and PyTorch's give the same perplexity, right and turned."""
    path, _ = gpt2_file()
    cfg = gpt2_file_config(path)
    sizes = [cfg[key] for key in ("vocab_size", "emb_dim", "n_heads", "n_layers")]
    model = PYTORCH.root.GPT(*sizes, max_len=cfg["context_length"], **OPTIONS)
    PYTORCH.root.load_gpt2(model, path)

    def perplexity():
        with torch.no_grad():
            logits = model(torch.tensor([ids[:-1]]))[0]
        return math.exp(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])))

    assert math.isclose(gpt2_reference.perplexity(ids), perplexity(), rel_tol=1e-3)
    with torch.no_grad():
        for blk in model.blks:
            blk.attention.W_o.weight.copy_(blk.attention.W_o.weight.T.clone())
    assert math.isclose(gpt2_reference.perplexity(ids, _turned), perplexity(), rel_tol=1e-3)


def test_perplexities(right, ids):
    assert check("12.2c", right)
    assert check("12.2c", {"shifts": right[0], "turned": round(right[1]), "exchanged": right[2]})
    assert check("12.2c", torch.tensor(right))
    rejected("12.2c", right[::-1], "another order")
    rejected("12.2c", np.log(right), "these are losses")
    plain = gpt2_reference.perplexity(ids)
    rejected("12.2c", [plain, *right[1:]], "without any mistake")
    no_shift = gpt2_reference.perplexity(ids, norm="no shift")
    rejected("12.2c", [no_shift, *right[1:]], "still subtracts the mean")

    def first_only(name, value):
        return _turned(name, value) if name.startswith("h.0.") else value

    turned = gpt2_reference.perplexity(ids, first_only)
    rejected(
        "12.2c", [right[0], turned, right[2]], "only the first block has its matrix transposed"
    )

    def weights_only(name, value):
        return _exchanged(name, value) if name.endswith("weight") else value

    exchanged = gpt2_reference.perplexity(ids, weights_only)
    rejected("12.2c", [*right[:2], exchanged], "biases change places too")
    rejected("12.2c", [1, 2, 3], "not what the file at hand gives")
    rejected("12.2c", [1, 2], "2 numbers")


# --- 12.3: the position table ---


def test_positions():
    table = gpt2_reference.positions()
    norms = np.linalg.norm(table, axis=1)
    middle = np.median(norms)
    right = np.flatnonzero(abs(norms - middle) > middle / 2).tolist()
    assert check("12.3a", right)
    assert check("12.3a", set(right))
    assert check("12.3a", torch.tensor(right[::-1]))
    rejected("12.3a", [i + 1 for i in right], "count from 0")
    rejected("12.3a", right[:-1], "some are missing")
    rejected("12.3a", [*right, 99], "1 of these does not stand out")
    rejected("12.3a", [0.5, 1.2], "as whole numbers")
    rejected("12.3a", [99], "other positions")
    rejected("12.3a", 0, "expects a list")

    unit = table / norms[:, None]
    cosines, half = unit @ unit.T, len(table) // 2

    def spreads(matrix, first=1, last=half, **how):
        diagonals = [np.diagonal(matrix, k) for k in range(first, last + 1)]
        along = np.mean([d.std(**how) for d in diagonals])
        return [along, np.std([d.mean() for d in diagonals], **how)]

    assert check("12.3b", spreads(cosines))
    assert check("12.3b", spreads(cosines, ddof=1))
    rejected("12.3b", spreads(cosines)[::-1], "changed places")
    rejected("12.3b", np.square(spreads(cosines)), "squared")
    rejected("12.3b", spreads(cosines, last=len(table) - 1), "all diagonals but the main one")
    rejected("12.3b", spreads(cosines, first=0), "the main diagonal too")
    rejected("12.3b", spreads(table @ table.T), "dot products")
    rejected("12.3b", [1, 1], "not what the file at hand gives")

    sizes = np.linalg.svd(table - table.mean(axis=0), compute_uv=False)
    share = (sizes[:3] ** 2).sum() / (sizes**2).sum()
    assert check("12.3c", share)
    assert check("12.3c", round(share, 3))
    rejected("12.3c", 100 * share, "not percent")
    rejected("12.3c", sizes[:3].sum() / sizes.sum(), "square of the singular value")
    rejected("12.3c", (sizes[:2] ** 2).sum() / (sizes**2).sum(), "fewer than three")
    rejected("12.3c", 1 - share, "what the three directions leave")
    rejected("12.3c", 0.9, "not what the file at hand gives")


# --- 12.4 and 12.5: bits per character ---


def test_bits_per_character(monkeypatch):
    assert check("12.4", [3.2, 2.23, 2.15])
    assert check("12.4", [3.0, 2.56, 5.34])  # without the corpus
    rejected("12.4", [3.2, 10.7, 8.4], "more than 7 bits")
    rejected("12.4", [1.5, 2.2, 2.1], "divide its loss by ln 2")
    rejected("12.4", [3.2, 1.54, 1.49], "the stand-in takes more bits")
    rejected("12.4", [3.2, 5.9, 5.8], "on the preprocessed passage that is too much")
    rejected("12.4", [-3.2, -2.2, -2.1], "positive")
    rejected("12.4", [3.2, 2.2], "2 numbers")


def test_the_released_file_takes_fewer_bits(monkeypatch):
    released = gpt2_file()._replace(kind="released")
    monkeypatch.setattr("d2lgpt.exercises.chapter_12.gpt2_file", lambda: released)
    assert check("12.4", [2.2, 1.3, 1.1])
    rejected("12.4", [2.2, 4.4, 3.3], "the released model takes fewer bits")
    rejected("12.4", [2.2, 0.3, 0.2], "too good")


def test_subwords():
    assert check("12.5a", [3.31, 3.25])
    rejected("12.5a", [3.9, 3.2], "within 0.5 bits")
    rejected("12.5a", [5.5, 5.4], "should lie between")
    rejected("12.5a", [1.1, 1.0], "should lie between")
    assert check("12.5b", [3.1, 3.2, 3.4, 82, 20, 6])
    assert check("12.5b", [3.1, 3.2, 3.4, 81.5, 17, 5])  # without the corpus
    rejected("12.5b", [3.1, 3.2, 3.4, 6, 20, 82], "the more rarely")
    rejected("12.5b", [3.1, 3.2, 3.4, 34, 14, 5], "that occur at all")
    rejected("12.5b", [3.1, 3.2, 3.4, 147, 40, 15], "the median, not the mean")
    rejected("12.5b", [3.1, 3.2, 3.4, 139, 33, 10], "the first 100,128")
    rejected("12.5b", [5.2, 6.2, 6.9, 82, 20, 6], "should lie between")
    rejected("12.5b", [3.1, 82], "2 numbers")
    assert check("12.5c", 3.2)
    rejected("12.5c", 6.9, "should lie between")
    assert check("12.5b", [2.7, 2.0, 1.73, 81.5, 17, 5])
    rejected("12.5c", 1.1, "should lie between")
    rejected("12.5c", "three", "the text 'three'")
