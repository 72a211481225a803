"""The stand-in checkpoint: a small GPT-2 that tells a right load from a wrong one.

Its perplexity is measured here on a page of The Time Machine that it has not seen and that
the package carries, and on all that was held out, where the book is at hand.
"""

import dataclasses
import hashlib
import importlib
import math
import shutil
import sys
import zipfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch
from both import BACKENDS, PYTORCH, judge_of, to_numpy
from flax import nnx
from torch.nn import functional as F

import d2lgpt.checkpoint
from d2lgpt import files
from d2lgpt.checkpoint import (
    FILE_NAMES,
    gpt2_file,
    gpt2_file_config,
    gpt2_layout,
    held_out_text,
    stand_in_path,
    write_random_gpt2,
)
from d2lgpt.config import gpt2_config
from d2lgpt.corpus import TIME_MACHINE, decode
from d2lgpt.parity import max_abs_diff
from d2lgpt.tokenizer import gpt2_tokenizer

ROOT = Path(__file__).parents[1]
PATH = stand_in_path()
CFG = gpt2_file_config(PATH)
D, LAYERS = CFG["emb_dim"], CFG["n_layers"]
OPTIONS = {"pos": "learned", "norm": "layer", "act": "gelu", "pre_norm": True, "bias": True}
CALL = {"pytorch": lambda model, ids: model(ids), "jax": nnx.jit(lambda model, ids: model(ids))}


def gpt(backend, **options):
    sizes = [CFG[key] for key in ("vocab_size", "emb_dim", "n_heads", "n_layers")]
    options = {"max_len": CFG["context_length"], **OPTIONS, **options}
    return backend.root.GPT(*sizes, **options, **backend.rngs())


def gpt_model(backend):
    return backend.scratch.GPTModel(CFG, **backend.rngs())


def load(backend, make=gpt, path=PATH):
    return backend.root.load_gpt2(backend.abstract(lambda: make(backend)), path)


def windows(text):
    """The tokens of a text in rows as long as the context, and one more; what is left is cut."""
    ids, T = np.array(gpt2_tokenizer().encode(text)), CFG["context_length"]
    rows = np.arange((len(ids) - 1) // T)[:, None] * T
    return ids[rows + np.arange(T + 1)]


def perplexity(model, text):
    """exp of the mean loss per token in nats."""
    losses = []
    with torch.no_grad():
        for ids in windows(text):
            if isinstance(model, torch.nn.Module):
                logits = model(torch.as_tensor(ids[None, :-1]))[0]
            else:
                logits = torch.from_numpy(
                    np.array(CALL["jax"](model, jnp.asarray(ids[None, :-1]))[0])
                )
            losses.append(F.cross_entropy(logits, torch.as_tensor(ids[1:])))
    return math.exp(np.mean(losses))


@pytest.fixture(scope="module")
def tensors():
    return safetensors.numpy.load_file(PATH)


@pytest.fixture(scope="module")
def models():
    return {backend.name: load(backend) for backend in BACKENDS}


# ---- The file ------------------------------------------------------------------------------------


def test_it_has_the_layout_of_the_released_file(tensors):
    assert {name: array.shape for name, array in tensors.items()} == gpt2_layout(CFG)
    assert {array.dtype for array in tensors.values()} == {np.dtype(np.float16)}
    for i in range(LAYERS):
        np.testing.assert_array_equal(
            tensors[f"h.{i}.attn.bias"][0, 0], np.tri(CFG["context_length"])
        )
    assert all(np.isfinite(array).all() and array.std() > 0 for array in tensors.values())


def test_it_has_the_real_vocabulary_and_sizes_of_its_own():
    assert CFG["vocab_size"] == 50257 == gpt2_tokenizer().n_vocab
    assert all(CFG[key] < gpt2_config("small")[key] for key in ("emb_dim", "n_layers"))


def test_it_is_small(tmp_path):
    with zipfile.ZipFile(tmp_path / "wheel", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in PATH.parent.iterdir():
            archive.write(path)
    assert (tmp_path / "wheel").stat().st_size < 5e6
    assert sum(path.stat().st_size for path in PATH.parent.iterdir()) < 14e6


def test_it_says_where_it_is_from():
    with safetensors.safe_open(PATH, "np") as file:
        metadata = file.metadata()
    assert metadata["format"] == "pt"
    assert "not" in FILE_NAMES["stand-in"] and "stand_in.py" in metadata["made by"]
    assert TIME_MACHINE.sha1 in metadata["text"]
    assert 100 < float(metadata["perplexity, held out"]) < 700


# ---- A right load --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge():
    """The model of another library."""
    return judge_of(CFG, PATH)


@torch.no_grad()
def test_five_models_agree(models, judge):
    ids = windows(held_out_text())[:1, :-1]
    logits = [judge(torch.as_tensor(ids)).logits.numpy()]
    for backend in BACKENDS:
        for model in (models[backend.name], load(backend, gpt_model)):
            logits.append(to_numpy(CALL[backend.name](model, backend.array(ids))))
    for other in logits[1:]:
        assert max_abs_diff(logits[0], other) <= 1e-4


def test_perplexity_is_the_same_in_both_backends(models):
    one, other = (perplexity(models[b.name], held_out_text()) for b in BACKENDS)
    assert one < 300
    assert one == pytest.approx(other, rel=1e-4)


def test_perplexity_on_all_that_was_held_out(models):
    try:
        book = decode(files.find(TIME_MACHINE, network=False).read_bytes())
    except FileNotFoundError:
        pytest.skip("The Time Machine is not on this machine")
    held_out = book[-20_000:]
    assert held_out_text() in held_out
    with safetensors.safe_open(PATH, "np") as file:
        stated = float(file.metadata()["perplexity, held out"])
    assert perplexity(models["pytorch"], held_out) == pytest.approx(stated, rel=0.02)


def test_greedy_text_is_words_of_the_book(models):
    prompt = torch.as_tensor([gpt2_tokenizer().encode("The Time Traveller")])
    for _ in range(30):
        with torch.no_grad():
            prompt = torch.cat([prompt, models["pytorch"](prompt)[:, -1:].argmax(-1)], 1)
    text = gpt2_tokenizer().decode(prompt[0].tolist())
    assert len(set(text.split())) > 8


# ---- Wrong loads ---------------------------------------------------------------------------------


def each(tensors, ending):
    return [name for name in tensors if name.startswith("h.") and name.endswith(ending)]


def order_of_thirds(*order):
    """Query, key and value of `c_attn` in another order."""

    def change(tensors):
        for name in each(tensors, "c_attn.weight") + each(tensors, "c_attn.bias"):
            thirds = np.split(tensors[name], 3, axis=-1)
            tensors[name] = np.concatenate([thirds[i] for i in order], axis=-1)

    return change


def transpose_c_proj(tensors):
    for name in each(tensors, "attn.c_proj.weight"):
        tensors[name] = tensors[name].T


def reshape_for_transpose(tensors):
    """All linear weights get the right shape, (out, in), from the wrong function."""
    for name in each(tensors, ".weight"):
        if tensors[name].ndim == 2:
            rows, columns = tensors[name].shape
            tensors[name] = tensors[name].reshape(columns, rows).T


def zero(*endings):
    def change(tensors):
        for name in tensors:
            if name.endswith(endings):
                tensors[name] = np.zeros_like(tensors[name])

    return change


def default_scales(tensors):
    for name in tensors:
        if "ln_" in name and name.endswith("weight"):
            tensors[name] = np.ones_like(tensors[name])


def swap_norms(tensors):
    for kind in ("weight", "bias"):
        for name in each(tensors, f"ln_1.{kind}"):
            other = name.replace("ln_1", "ln_2")
            tensors[name], tensors[other] = tensors[other], tensors[name]


def blocks_backwards(tensors):
    old = dict(tensors)
    for name in each(tensors, ""):
        _, i, rest = name.split(".", 2)
        tensors[name] = old[f"h.{LAYERS - 1 - int(i)}.{rest}"]


# What is done to the file before it is loaded, and the least factor by which perplexity must rise.
# Measured: 8.3, 11, 5.5, 3.7, 8.2, 6.8, 2.0, 2.8, 2.1, 1.9, 1.2 and 3.8. What does not show is the
# position table moved by one row: 1.00.
MISTAKES = {
    "query and key swapped": (order_of_thirds(1, 0, 2), 4),
    "key and value swapped": (order_of_thirds(0, 2, 1), 5),
    "value first": (order_of_thirds(2, 0, 1), 3),
    "attn.c_proj the wrong way round": (transpose_c_proj, 2.5),
    "reshaped, not transposed": (reshape_for_transpose, 4),
    "blocks backwards": (blocks_backwards, 4),
    "norms of a block swapped": (swap_norms, 1.6),
    "no norm shifts": (zero("ln_1.bias", "ln_2.bias", "ln_f.bias"), 2),
    "no norm scales": (default_scales, 1.6),
    "no biases of linear layers": (zero("c_attn.bias", "c_proj.bias", "c_fc.bias"), 1.5),
    "no biases of query, key, value": (zero("c_attn.bias"), 1.1),
    "no positions": (zero("wpe.weight"), 2.5),
}


def altered(tensors, change, folder):
    tensors = {name: array.astype(np.float32) for name, array in tensors.items()}
    change(tensors)
    own = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    safetensors.numpy.save_file(own, folder / "altered.safetensors")
    return folder / "altered.safetensors"


def rise(models, wrong):
    right, wrong = (perplexity(model, held_out_text()) for model in (models["pytorch"], wrong))
    print(f"perplexity {wrong:.0f}, {wrong / right:.2f} times {right:.0f}")
    return wrong / right


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_load_shows(mistake, tensors, models, tmp_path):
    change, factor = MISTAKES[mistake]
    wrong = load(PYTORCH, path=altered(tensors, change, tmp_path))
    assert rise(models, wrong) > factor


def test_rms_normalization_without_the_shifts_shows(models):
    """Exercise 12.2: `load_gpt2` refuses such a model, so the rest is carried over by hand."""
    model = gpt(PYTORCH, norm="rms")
    missing = model.load_state_dict(models["pytorch"].state_dict(), strict=False)
    assert not missing.missing_keys and len(missing.unexpected_keys) == 2 * LAYERS + 1
    assert rise(models, model.eval()) > 2  # measured: 2.9


def test_another_number_of_heads_shows(models):
    cfg = {**CFG, "n_heads": CFG["n_heads"] // 2}
    model = load(PYTORCH, lambda backend: backend.scratch.GPTModel(cfg))
    assert rise(models, model) > 2  # measured: 3.2


# ---- Which file is at hand -----------------------------------------------------------------------


@pytest.fixture
def nothing_at_hand(tmp_path, monkeypatch):
    """No file of the released weights on this machine, and no network."""
    monkeypatch.setattr(files, "_cache", lambda: tmp_path / "cache")
    for name in ("D2LGPT_DATA", "D2LGPT_GPT2"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("D2LGPT_OFFLINE", "1")
    d2lgpt.checkpoint._from_the_network.cache_clear()
    yield tmp_path
    d2lgpt.checkpoint._from_the_network.cache_clear()


@pytest.fixture
def released(nothing_at_hand, monkeypatch):
    """A small file whose hash is taken for that of the released weights; in no place yet."""
    path = write_random_gpt2(nothing_at_hand / "random", gpt2_config("small", **SMALL))
    sha1 = hashlib.sha1(path.read_bytes()).hexdigest()
    monkeypatch.setattr(files, "GPT2", dataclasses.replace(files.GPT2, sha1=sha1))
    return path


SMALL = {"vocab_size": 30, "context_length": 5, "emb_dim": 128, "n_layers": 2, "n_heads": 2}


def test_with_nothing_at_hand_it_is_the_stand_in(nothing_at_hand):
    path, kind = gpt2_file()
    assert (path, kind) == (PATH, "stand-in") == (gpt2_file().path, gpt2_file().kind)
    assert not (nothing_at_hand / "cache").exists()


def test_the_released_file_is_found_on_this_machine(released, monkeypatch):
    cached = released.parent / "cache" / files.GPT2.cached
    cached.parent.mkdir()
    shutil.copy(released, cached)
    assert gpt2_file() == (cached, "released")
    folder = released.parent / "folder"
    folder.mkdir()
    monkeypatch.setenv("D2LGPT_DATA", str(folder))
    (folder / files.GPT2.name).write_bytes(b"something else")
    assert gpt2_file() == (cached, "released")
    shutil.copy(released, folder / files.GPT2.name)
    assert gpt2_file() == (folder / files.GPT2.name, "released")


def test_the_reader_decides(released, monkeypatch):
    monkeypatch.setenv("D2LGPT_GPT2", "released")
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        gpt2_file()
    monkeypatch.setenv("D2LGPT_DATA", str(released.parent))
    place = released.replace(released.with_name(files.GPT2.name))
    assert gpt2_file() == (place, "released")
    monkeypatch.setenv("D2LGPT_GPT2", "stand-in")
    assert gpt2_file() == (PATH, "stand-in")
    monkeypatch.setenv("D2LGPT_GPT2", "large")
    with pytest.raises(ValueError, match="D2LGPT_GPT2 must be one of 'released', 'stand-in', not"):
        gpt2_file()


@pytest.mark.parametrize("offline", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_the_network_is_tried_once(offline, fails, nothing_at_hand, monkeypatch):
    asked = []

    def find(file, network=True):
        assert file is files.GPT2
        asked.append(network)
        if fails or not network:
            raise FileNotFoundError
        return nothing_at_hand / "fetched"

    monkeypatch.setattr(files, "find", find)
    monkeypatch.setenv("D2LGPT_OFFLINE", str(int(offline)))
    found = {gpt2_file(), gpt2_file()}
    if fails or offline:
        assert found == {(PATH, "stand-in")}
    else:
        assert found == {(nothing_at_hand / "fetched", "released")}
    assert asked == ([False, False] if offline else [False, True, False])


def test_configuration_of_a_file(released, tmp_path):
    assert gpt2_file_config(released) == gpt2_config("small", **SMALL, qkv_bias=True)
    odd = write_random_gpt2(tmp_path / "odd", {**gpt2_config("small", **SMALL), "emb_dim": 48})
    with pytest.raises(ValueError, match="does not say how many heads"):
        gpt2_file_config(odd)
    safetensors.numpy.save_file({"x": np.zeros(3, np.float32)}, tmp_path / "other")
    with pytest.raises(ValueError, match=r"no GPT-2: it has no table wte\.weight"):
        gpt2_file_config(tmp_path / "other")
    with pytest.raises(FileNotFoundError):
        gpt2_file_config(tmp_path / "missing")


# ---- The command ---------------------------------------------------------------------------------


def test_the_command_says_when_the_book_is_missing(nothing_at_hand, capsys):
    sys.path.insert(0, str(ROOT / "book" / "_scripts"))
    stand_in = importlib.import_module("stand_in")
    assert stand_in.main(["--out", str(nothing_at_hand / "out")]) == 1
    assert "trained on The Time Machine and no other text" in capsys.readouterr().out
    assert not (nothing_at_hand / "out").exists()


def test_the_command_makes_the_same_file_twice(tmp_path, monkeypatch, capsys):
    sys.path.insert(0, str(ROOT / "book" / "_scripts"))
    stand_in = importlib.import_module("stand_in")
    book = tmp_path / "book.txt"
    start, end = stand_in.EXCERPT
    book.write_text(f"{'It was the best of times. ' * 200}{start} It was the worst of times. {end}")
    monkeypatch.setattr(stand_in, "find", lambda file: book)
    monkeypatch.setattr(stand_in, "HELD_OUT", 150)
    outs = [tmp_path / "one", tmp_path / "other"]
    for out in outs:
        assert stand_in.main(["--steps", "2", "--out", str(out)]) == 0
    assert "perplexity, held out" in capsys.readouterr().out
    one, other = ((out / PATH.name).read_bytes() for out in outs)
    assert one == other
    assert {path.name for path in outs[0].iterdir()} == {
        path.name for path in PATH.parent.iterdir()
    }
    assert gpt2_file_config(outs[0] / PATH.name) == CFG
    text = (outs[0] / "held-out.txt").read_text()
    assert text.startswith(start) and end not in text
