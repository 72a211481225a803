"""Five implementations of GPT-2 compute the same from one file.

They are `GPTModel` and `GPT`, each in both backends, and the model of the transformers library,
which was written by others and judges from outside. `test_loading.py` tries one size in many
variants of the file; here are many sizes, greedy text, and the stand-in.
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from both import BACKENDS, PYTORCH, judge_of, to_numpy
from flax import nnx

from d2lgpt.checkpoint import gpt2_file_config, stand_in_path, write_random_gpt2
from d2lgpt.config import gpt2_config
from d2lgpt.parity import max_abs_diff
from d2lgpt.tokenizer import gpt2_tokenizer

pytest.importorskip("transformers")

CALL = {"pytorch": lambda model, ids: model(ids), "jax": nnx.jit(lambda model, ids: model(ids))}
BOUND = 1e-4

# vocab_size, context_length, emb_dim, n_heads, n_layers: odd numbers, one head, one block, heads of
# one number, a context of one token.
SIZES = [(101, 13, 35, 5, 2), (30, 9, 63, 1, 1), (11, 5, 3, 3, 3), (7, 1, 8, 2, 2)]


def make(backend, name, cfg):
    if name == "GPTModel":
        return backend.scratch.GPTModel(cfg, **backend.rngs())
    sizes = [cfg[key] for key in ("vocab_size", "emb_dim", "n_heads", "n_layers")]
    options = {"pos": "learned", "norm": "layer", "act": "gelu", "pre_norm": True, "bias": True}
    return backend.root.GPT(*sizes, max_len=cfg["context_length"], **options, **backend.rngs())


@torch.no_grad()
def five_ways(cfg, path, ids, new=0):
    """The logits of all five for token ids, and their greedy continuations by `new` tokens."""
    outside = judge_of(cfg, path)
    prompt = torch.as_tensor(ids)
    logits, greedy = {"judge": outside(prompt).logits.numpy()}, {}
    if new:
        options = {"max_new_tokens": new, "do_sample": False}
        mask = torch.ones_like(prompt)
        greedy["judge"] = outside.generate(prompt, attention_mask=mask, **options).tolist()
    for backend in BACKENDS:
        for name in ("GPTModel", "GPT"):
            model = backend.abstract(lambda b=backend, n=name: make(b, n, cfg))
            model = backend.root.load_gpt2(model, path)
            key, prompt = f"{name} in {backend.name}", backend.array(ids)
            logits[key] = to_numpy(CALL[backend.name](model, prompt))
            if new and name == "GPT":
                greedy[key] = model.generate(prompt, new, temperature=0).tolist()
            elif new:
                generate = backend.scratch.generate_text_simple
                greedy[key] = generate(model, prompt, new, cfg["context_length"]).tolist()
    return logits, greedy


def assert_equal(logits):
    assert len(logits) == 5
    differences = {
        f"{one}, {other}": max_abs_diff(logits[one], logits[other])
        for one, other in combinations(logits, 2)
    }
    assert max(differences.values()) <= BOUND, differences


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_random_files_of_many_sizes(sizes, tmp_path):
    names = ("vocab_size", "context_length", "emb_dim", "n_heads", "n_layers")
    cfg = gpt2_config("small", **dict(zip(names, sizes, strict=True)), qkv_bias=True)
    path = write_random_gpt2(tmp_path / "random.safetensors", cfg, seed=sum(sizes))
    shape = (2, (cfg["context_length"] + 1) // 2)
    ids = np.random.default_rng(0).integers(0, cfg["vocab_size"], shape)
    logits, greedy = five_ways(cfg, path, ids, new=cfg["context_length"] // 2)
    assert logits["judge"].std() > 0.3, "logits that say something"
    assert_equal(logits)
    assert all(tokens == greedy["judge"] for tokens in greedy.values()), greedy


@torch.no_grad()
def test_only_the_judge_sees_a_wrong_number_of_heads(tmp_path):
    """The heads leave no trace in the file: neither a name nor a shape can tell."""
    cfg = gpt2_config(
        "small", vocab_size=50, context_length=8, emb_dim=24, n_heads=3, n_layers=1, qkv_bias=True
    )
    path = write_random_gpt2(tmp_path / "random.safetensors", cfg)
    ids = torch.arange(8)[None]
    expected = judge_of(cfg, path)(ids).logits
    for heads, same in ((3, True), (4, False)):
        model = PYTORCH.root.load_gpt2(make(PYTORCH, "GPT", {**cfg, "n_heads": heads}), path)
        assert (max_abs_diff(model(ids), expected) <= BOUND) == same


def test_the_stand_in_goes_on_in_the_same_words():
    """`test_stand_in.py` compares its logits; greedy text shows what follows from them."""
    path = stand_in_path()
    prompt = "Alan Turing theorized that computers would one day become"
    logits, greedy = five_ways(
        gpt2_file_config(path), path, [gpt2_tokenizer().encode(prompt)], new=16
    )
    assert_equal(logits)
    assert all(tokens == greedy["judge"] for tokens in greedy.values()), greedy
