"""The released GPT-2 file: its layout, and what loading makes of it, whole, odd or damaged."""

import gzip
import io
import json
import math
import os
import subprocess
import sys
import textwrap
import zipfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
import safetensors.torch
import torch
from both import BACKENDS, JAX, PYTORCH, judge_of, randomize, small_config, to_numpy
from facts import assert_fact
from flax import nnx

import d2lgpt.checkpoint
import d2lgpt.jax.gpt
import d2lgpt.torch.gpt
from d2lgpt.checkpoint import (
    Checkpoint,
    gpt2_file_config,
    gpt2_layout,
    write_gpt2,
    write_random_gpt2,
)
from d2lgpt.config import gpt2_config
from d2lgpt.jax import loading as jax_loading
from d2lgpt.parameters import parameters
from d2lgpt.parity import copy_weights, max_abs_diff
from d2lgpt.torch import loading as torch_loading

CFG = small_config(qkv_bias=True)
GPT2_OPTIONS = {"pos": "learned", "norm": "layer", "act": "gelu", "pre_norm": True, "bias": True}
LOAD = {"pytorch": torch_loading.load_gpt2, "jax": jax_loading.load_gpt2}
GPT = {"pytorch": d2lgpt.torch.gpt.GPT, "jax": d2lgpt.jax.gpt.GPT}
IDS = np.arange(20).reshape(2, 10) % CFG["vocab_size"]

both_backends = pytest.mark.parametrize("backend", BACKENDS, ids=lambda b: b.name)


def gpt_model(backend, **overrides):
    return backend.scratch.GPTModel({**CFG, **overrides}, **backend.rngs())


def gpt(backend, **overrides):
    sizes = [CFG[key] for key in ("vocab_size", "emb_dim", "n_heads", "n_layers")]
    options = {"max_len": CFG["context_length"], **GPT2_OPTIONS, **overrides}
    return GPT[backend.name](*sizes, **options, **backend.rngs())


def load(backend, path, make=gpt_model):
    """Load into an abstract model: nothing of it can be left over."""
    return LOAD[backend.name](backend.abstract(lambda: make(backend)), path)


CALL = {"pytorch": lambda model, ids: model(ids), "jax": nnx.jit(lambda model, ids: model(ids))}


def logits(backend, model):
    return to_numpy(CALL[backend.name](model, backend.array(IDS)))


def values(model) -> dict[str, np.ndarray]:
    """The parameters of a model, by all their names, as PyTorch would have them."""
    found = {}
    for p in parameters(model):
        array = p.value if isinstance(p.value, torch.Tensor) else p.value[...]
        array = to_numpy(array).copy()
        found |= dict.fromkeys(sorted(p.names), array.T if p.transposed else array)
    return found


def assert_same(one, other):
    a, b = values(one), values(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_random_gpt2(tmp_path_factory.mktemp("gpt2") / "model.safetensors", CFG)


@pytest.fixture(scope="module")
def tensors(path):
    return safetensors.torch.load_file(path)


@pytest.fixture(scope="module")
def judge(path):
    """The model of another library, loaded by that library from the same file."""
    model = judge_of(CFG, path)
    with torch.no_grad():
        return model(torch.as_tensor(IDS)).logits.numpy()


def saved(folder, tensors, name="changed.safetensors"):
    """A file of other tensors: in memory of their own, as safetensors wants them."""
    own = {key: value.clone().contiguous() for key, value in tensors.items()}
    safetensors.torch.save_file(own, folder / name, {"format": "pt"})
    return folder / name


# ---- The layout, and random files in it ----------------------------------------------------------


def test_the_layout_of_the_released_file():
    layout = gpt2_layout(gpt2_config("small"))
    assert_fact("gpt2.tensors", [len(layout), sum(map(math.prod, layout.values()))])
    assert layout["h.11.attn.c_attn.weight"] == (768, 2304)
    assert layout["h.11.mlp.c_fc.weight"] == (768, 3072)
    assert layout["h.11.mlp.c_proj.weight"] == (3072, 768)
    assert layout["h.11.attn.bias"] == (1, 1, 1024, 1024)


def test_a_random_file_is_in_the_layout(path):
    found = safetensors.numpy.load_file(path)
    assert {name: array.shape for name, array in found.items()} == gpt2_layout(CFG)
    assert {array.dtype for array in found.values()} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(found["h.1.attn.bias"][0, 0], np.tri(CFG["context_length"]))
    assert all(array.std() > 0 for array in found.values()), "no tensor may be without effect"
    with safetensors.safe_open(path, "np") as file:
        assert file.metadata() == {"format": "pt"}


def test_the_seed_decides_the_numbers(path, tmp_path):
    same = write_random_gpt2(tmp_path / "same", CFG, seed=0)
    other = write_random_gpt2(tmp_path / "other", CFG, seed=1)
    assert same.read_bytes() == path.read_bytes() != other.read_bytes()


def test_a_random_file_gets_its_name_when_it_is_whole(tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    path.write_text("what was there before")
    monkeypatch.setattr(d2lgpt.checkpoint, "_random", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_random_gpt2(path, CFG)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "what was there before"


# ---- Agreement -----------------------------------------------------------------------------------


@both_backends
@pytest.mark.parametrize("make", [gpt_model, gpt])
def test_five_implementations_agree(backend, make, path, judge):
    assert judge.std() > 0.5, "logits that say something"
    for model in (load(backend, path, make), LOAD[backend.name](make(backend), path)):
        assert max_abs_diff(logits(backend, model), judge) <= 1e-4


@both_backends
@pytest.mark.parametrize("make", [gpt_model, gpt])
def test_a_wrong_orientation_shows_in_the_logits(backend, make, tensors, judge, tmp_path):
    """`attn.c_proj` is square: its transpose fits, and only the numbers can tell."""
    name = "h.0.attn.c_proj.weight"
    wrong = saved(tmp_path, {**tensors, name: tensors[name].T})
    assert max_abs_diff(logits(backend, load(backend, wrong, make)), judge) > 0.1


# ---- Variants of the file ------------------------------------------------------------------------


def with_prefix(tensors):
    return {f"transformer.{name}": value for name, value in tensors.items()}


def without_masks(tensors):
    return {k: v for k, v in tensors.items() if not k.endswith(".attn.bias")}


def with_masked_bias(tensors):
    extra = {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(CFG["n_layers"])}
    return {**tensors, **extra}


def with_boolean_masks(tensors):
    return {k: v.bool() if k.endswith(".attn.bias") else v for k, v in tensors.items()}


def with_head(tensors):
    return {**with_prefix(without_masks(tensors)), "lm_head.weight": tensors["wte.weight"]}


VARIANTS = [with_prefix, without_masks, with_masked_bias, with_boolean_masks, with_head]


@both_backends
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda f: f.__name__)
def test_variants_give_the_same_model(backend, variant, path, tensors, tmp_path):
    assert_same(
        load(backend, saved(tmp_path, variant(tensors))),
        load(backend, path),
    )


@both_backends
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_files(backend, dtype, tensors, tmp_path):
    half = {name: value.to(dtype) for name, value in tensors.items()}
    back = {name: value.float() for name, value in half.items()}
    model = load(backend, saved(tmp_path, half))
    assert_same(model, load(backend, saved(tmp_path, back, "float32.safetensors")))
    assert {value.dtype for value in values(model).values()} == {np.dtype(np.float32)}


@both_backends
def test_numbers_that_start_at_an_odd_byte(backend, path, tmp_path):
    """Early versions of safetensors did not align what they wrote."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    odd = tmp_path / "odd"
    odd.write_bytes((length + 1).to_bytes(8, "little") + content[8:][:length] + b" ")
    with odd.open("ab") as stream:
        stream.write(content[8 + length :])
    assert not np.ndarray(1, "<f4", odd.read_bytes(), 8 + length + 1).flags.aligned
    assert_same(load(backend, odd), load(backend, path))


@both_backends
def test_a_folder_called_gpt2_harms_nothing(backend, path, tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    (tmp_path / "model.safetensors").write_bytes(path.read_bytes())
    monkeypatch.chdir(tmp_path)
    assert_same(load(backend, "model.safetensors"), load(backend, path))
    with pytest.raises(FileNotFoundError, match="gpt2 is a folder: give the path"):
        load(backend, "gpt2")
    assert not list((tmp_path / "gpt2").iterdir())


# ---- Files that do not fit -----------------------------------------------------------------------


def replaced(name, value):
    return lambda tensors: {**tensors, name: value}


def removed(name):
    return lambda tensors: {k: v for k, v in tensors.items() if k != name}


D, V = CFG["emb_dim"], CFG["vocab_size"]
WRONG = {
    "missing": (removed("h.1.ln_2.bias"), [r"h\.1\.ln_2\.bias is missing", r"\(24,\)"]),
    "surplus": (
        replaced("h.2.ln_1.bias", torch.zeros(D)),
        [r"h\.2\.ln_1\.bias of shape \(24,\) is surplus"],
    ),
    "surplus mask": (
        replaced("h.2.attn.bias", torch.zeros(1, 1, 12, 12)),
        [r"h\.2\.attn\.bias of shape \(1, 1, 12, 12\) is surplus"],
    ),
    "shape": (
        replaced("h.0.mlp.c_fc.weight", torch.zeros(4 * D, D)),
        [r"h\.0\.mlp\.c_fc\.weight has shape \(96, 24\)", r"needs \(24, 96\)"],
    ),
    "shape of the vocabulary": (
        replaced("wte.weight", torch.zeros(V + 1, D)),
        [r"wte\.weight has shape \(51, 24\)", r"needs \(50, 24\)"],
    ),
    "shape of a mask": (
        replaced("h.0.attn.bias", torch.zeros(1, 1, 24, 24)),
        [r"h\.0\.attn\.bias has shape \(1, 1, 24, 24\)", r"needs \(1, 1, 12, 12\)"],
    ),
    "head": (
        replaced("lm_head.weight", torch.zeros(V, D)),
        [r"lm_head\.weight \(50, 24\) holds other numbers than wte\.weight"],
    ),
    "type": (
        replaced("wpe.weight", torch.zeros(12, D, dtype=torch.int64)),
        [r"wpe\.weight .* is of type I64"],
    ),
    "twice": (replaced("transformer.ln_f.bias", torch.zeros(D)), [r"ln_f\.bias twice"]),
}


@both_backends
@pytest.mark.parametrize("fault", WRONG)
def test_a_file_that_does_not_fit_leaves_the_model_as_it_was(backend, fault, tensors, tmp_path):
    change, patterns = WRONG[fault]
    path = saved(tmp_path, change(tensors))
    model = gpt_model(backend)
    model.train()
    before, head = values(model), model.out_head
    weights = {id(p.value) for p in parameters(model)}
    with pytest.raises(ValueError) as caught:
        LOAD[backend.name](model, path)
    for pattern in patterns:
        caught.match(pattern)
    after = values(model)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert {id(p.value) for p in parameters(model)} == weights and model.out_head is head
    assert model.training if backend is PYTORCH else not model.drop_emb.deterministic


@both_backends
def test_all_faults_are_told_at_once_but_not_endlessly(backend, tmp_path):
    path = write_random_gpt2(tmp_path / "small", {**CFG, "emb_dim": 12})
    with pytest.raises(ValueError, match="and 18 more") as caught:
        load(backend, path)
    assert str(caught.value).count("\n") == 11


def test_an_abstract_model_stays_abstract_after_a_failure(tensors, tmp_path):
    with torch.device("meta"):
        model = gpt_model(PYTORCH)
    with pytest.raises(ValueError):
        LOAD["pytorch"](model, saved(tmp_path, removed("ln_f.bias")(tensors)))
    assert all(p.is_meta for p in model.parameters())


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)
    return stream.getvalue()


def index_of(*shards):
    weights = {f"h.{i}.ln_1.bias": shard for i, shard in enumerate(shards)}
    return json.dumps({"metadata": {"total_size": 1}, "weight_map": weights}, indent=2).encode()


def as_npz(whole):
    stream = io.BytesIO()
    np.savez(stream, **{"wte.weight": np.zeros(2), "wpe.weight": np.ones(3)})
    return stream.getvalue()


def as_npy(whole):
    stream = io.BytesIO()
    np.save(stream, np.zeros(2))
    return stream.getvalue()


def as_pickle(whole, **options):
    stream = io.BytesIO()
    torch.save({"wte.weight": torch.zeros(2)}, stream, **options)
    return stream.getvalue()


DAMAGED = {
    "cut short": (lambda whole: whole[:-100], "perhaps cut short: download the file again"),
    "cut in the header": (lambda whole: whole[:100], "download the file again"),
    "a byte too many": (lambda whole: whole + b"x", "download the file again"),
    "empty": (lambda whole: b"", "an empty file: download the file again"),
    "web page": (
        lambda whole: b"\n<!DOCTYPE html><html>Not found</html>",
        "a web page saved under this name: download the file again",
    ),
    "pointer": (
        lambda whole: b"version https://git-lfs.github.com/spec/v1\n",
        "a Git LFS pointer, not the file that it points to: download the file again",
    ),
    "old pickle": (
        lambda whole: b"\x80\x02}q\x01." * 9,
        "a pickle file, which is never opened.*: download the safetensors file instead",
    ),
    "PyTorch's": (as_pickle, "a pickle file, .*: download the safetensors file"),
    "PyTorch's old": (
        lambda whole: as_pickle(whole, _use_new_zipfile_serialization=False),
        "a pickle file, .*: download the safetensors file",
    ),
    "zipped pickle": (lambda whole: b"PK\x03\x04archive/data.pkl", "a pickle file"),
    "npz": (as_npz, r"an archive of NumPy arrays \(.npz\): write it .*save_file\(dict\(numpy.load"),
    "npy": (as_npy, r"a NumPy array \(.npy\), .*: download the safetensors file instead"),
    "zip": (
        lambda whole: zipped(model_safetensors=whole, readme_txt=b"Read me"),
        "a zip archive: unpack it, and give the path of the safetensors file in it",
    ),
    "zip cut short": (lambda whole: zipped(a=whole)[:300], "a zip archive: unpack it"),
    "gzip": (gzip.compress, "compressed with gzip: unpack it first"),
    "Keras": (lambda whole: b"\x89HDF\r\n\x1a\n" + whole, "an HDF5 file, .*: download the safe"),
    "GGUF": (lambda whole: b"GGUF\x03\0\0\0" + whole, "a GGUF file, .*: download the safetensors"),
    "index": (
        lambda whole: index_of("a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"),
        r"the index of a checkpoint in 2 files \(a-00001-of-00002.safetensors, "
        r"a-00002-of-00002.safetensors\): join them into one, with load_file and save_file",
    ),
    "index of pickles": (
        lambda whole: index_of("a-00001-of-00001.bin"),
        r"in 1 files \(a-00001-of-00001.bin\), which are no safetensors files: download the safe",
    ),
    "configuration": (
        lambda whole: json.dumps(CFG).encode(),
        "a JSON file, with words in place of weights: download the safetensors file instead",
    ),
    "other JSON": (lambda whole: b'[{"weight_map": 1}]', "a JSON file, with words"),
    "half of a JSON": (lambda whole: index_of("a", "b")[:-30], "a JSON file, with words"),
    "text": (lambda whole: b"#version: 0.2\n", "no whole safetensors file"),
}


@both_backends
@pytest.mark.parametrize("damage", DAMAGED)
def test_a_file_that_is_not_what_it_seems(backend, damage, path, tmp_path):
    change, message = DAMAGED[damage]
    damaged = tmp_path / "model.safetensors"
    damaged.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=rf"model\.safetensors is .*{message}"):
        load(backend, damaged)


@both_backends
def test_one_file_of_several(backend, tensors, tmp_path):
    some = dict(list(tensors.items())[:5])
    shard = saved(tmp_path, some, "model-00001-of-00002.safetensors")
    with pytest.raises(ValueError, match=r"it is file 1 of 2 of a checkpoint: join them into one"):
        load(backend, shard)
    shard = saved(tmp_path, {"ln_f.bias": torch.zeros(2)}, "model-00002-of-00002.safetensors")
    with pytest.raises(ValueError, match=r"no table wte.weight \(it is file 2 of 2 of a checkp"):
        gpt2_file_config(shard)


@pytest.mark.parametrize("heads", ["abc", "", "0", "-3", "3.0", "7", "1e1"])
def test_metadata_that_make_no_sense(heads, path, tmp_path):
    changed = write_gpt2(
        tmp_path / "file", CFG, lambda name, shape: np.zeros(shape), metadata={"n_heads": heads}
    )
    with pytest.raises(
        ValueError, match=rf"file says .* n_heads='{heads}', which .* width 24: wri"
    ):
        gpt2_file_config(changed)
    good = write_gpt2(
        tmp_path / "file", CFG, lambda name, shape: np.zeros(shape), metadata={"n_heads": "3"}
    )
    assert gpt2_file_config(good)["n_heads"] == 3


@both_backends
def test_a_folder_in_place_of_a_file(backend, path):
    words = "is a folder: give the path of a safetensors file, such as model.safetensors in it"
    with pytest.raises(FileNotFoundError, match=words):
        load(backend, path.parent)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes as on Unix")
def test_a_pipe_in_place_of_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="is no ordinary file: give the path of a safe"):
        Checkpoint(tmp_path / "pipe")


def test_a_type_that_no_file_is_written_in(tmp_path):
    with pytest.raises(ValueError, match="dtype must be one of 'F32', 'F16', not 'F64'"):
        write_gpt2(tmp_path / "file", CFG, lambda name, shape: np.zeros(shape), dtype="F64")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Checkpoint(tmp_path / "model.safetensors")


# ---- Models that do not fit ----------------------------------------------------------------------


@both_backends
def test_a_model_that_is_not_built_as_gpt2(backend, path):
    with pytest.raises(ValueError, match="qkv_bias=True") as caught:
        LOAD[backend.name](gpt_model(backend, qkv_bias=False), path)
    caught.match(r"it has no trf_blocks\.0\.att\.W_key\.bias")
    for name, other in {"pos": "rope", "norm": "rms", "act": "swiglu", "bias": False}.items():
        with pytest.raises(ValueError, match="build it with pos='learned', norm='layer'"):
            LOAD[backend.name](gpt(backend, **{name: other}), path)
    with pytest.raises(ValueError, match="normalize after the shortcut"):
        LOAD[backend.name](gpt(backend, pre_norm=False), path)
    with pytest.raises(TypeError, match="not into a Linear"):
        LOAD[backend.name](backend.Linear(2, 3), path)


# ---- The loaded model ----------------------------------------------------------------------------


@both_backends
@pytest.mark.parametrize("make", [gpt_model, gpt])
def test_the_head_is_the_token_table(backend, make, path):
    numbers = sum(math.prod(s) for n, s in gpt2_layout(CFG).items() if ".attn.bias" not in n)
    once = load(backend, path, make)
    assert backend.root.count_parameters(once) == numbers
    twice = LOAD[backend.name](once, path)
    assert twice is once and backend.root.count_parameters(twice) == numbers


def test_a_tied_head_stays_tied_in_pytorch(path):
    model = load(PYTORCH, path)
    assert model.out_head.weight is model.tok_emb.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.tok_emb.weight.detach().clone()
    model(torch.as_tensor(IDS)).square().mean().backward()
    optimizer.step()
    assert max_abs_diff(model.tok_emb.weight, before) > 0
    assert model.out_head.weight is model.tok_emb.weight


def test_a_tied_head_stays_tied_in_jax(path):
    model = load(JAX, path)
    assert model.out_head.tok_emb is model.tok_emb
    optimizer = nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)
    before = to_numpy(model.tok_emb.embedding[...]).copy()

    @nnx.jit
    def step(model, optimizer, ids):
        grads = nnx.grad(lambda model: jnp.square(model(ids)).mean())(model)
        optimizer.update(model, grads)

    step(model, optimizer, jnp.asarray(IDS))
    assert max_abs_diff(model.tok_emb.embedding[...], before) > 0
    assert model.out_head.tok_emb.embedding is model.tok_emb.embedding


@both_backends
def test_it_generates_in_evaluation_mode(backend, path, judge):
    model = load(backend, path)
    out = backend.scratch.generate_text_simple(model, backend.array(IDS), 1, 10)
    assert to_numpy(out)[:, -1].tolist() == judge[:, -1].argmax(axis=-1).tolist()
    assert np.array_equal(logits(backend, model), logits(backend, model)), "no dropout"


@both_backends
def test_dropout_works_after_an_abstract_start(backend, path):
    model = load(backend, path)
    model.train()
    assert not np.array_equal(logits(backend, model), logits(backend, model))


@pytest.mark.parametrize("make", [gpt_model, gpt])
def test_weights_can_be_copied_between_loaded_models(make, path):
    a, b = load(PYTORCH, path, make), load(JAX, path, make)
    randomize(a)
    copy_weights(a, b)
    assert max_abs_diff(logits(PYTORCH, a), logits(JAX, b)) < 1e-4
    randomize(a, seed=1)
    copy_weights(b, a)
    assert max_abs_diff(logits(PYTORCH, a), logits(JAX, b)) < 1e-4


def test_a_concrete_model_keeps_its_parameters_and_types(path):
    model = gpt_model(PYTORCH).half()
    kept = model.tok_emb.weight
    LOAD["pytorch"](model, path)
    assert model.tok_emb.weight is kept and kept.dtype == torch.float16
    model = gpt_model(JAX)
    half = jax.tree.map(lambda array: array.astype(jnp.float16), nnx.state(model, nnx.Param))
    nnx.update(model, half)
    kept = model.tok_emb.embedding
    LOAD["jax"](model, path)
    assert model.tok_emb.embedding is kept and kept[...].dtype == jnp.float16


@both_backends
def test_writing_to_the_model_leaves_the_file_alone(backend, path):
    before = path.read_bytes()
    model = load(backend, path)
    if backend is PYTORCH:
        randomize(model)
    else:
        model.tok_emb.embedding[...] = jnp.zeros_like(model.tok_emb.embedding[...])
    assert path.read_bytes() == before


@pytest.mark.parametrize("make", [gpt_model, gpt])
@pytest.mark.parametrize("start", [0, 8, 32], ids="{} after 64".format)
def test_a_model_of_jax_shares_nothing_with_the_file(make, start, path, tmp_path):
    """JAX takes over memory that starts at a multiple of 64 bytes, if it may."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    longer = length + (start - 8 - length) % 64
    copy = tmp_path / "copy"
    header = longer.to_bytes(8, "little") + content[8 : 8 + length].ljust(longer)
    copy.write_bytes(header + content[8 + length :])
    model = load(JAX, copy, make)
    with copy.open("r+b") as stream:
        stream.seek(len(header))
        stream.write(bytes(len(content) - 8 - length))
    assert_same(model, load(JAX, path, make))


def test_arrays_are_views_of_the_file(path):
    checkpoint = Checkpoint(path)
    one, other = checkpoint["wte.weight"], checkpoint["wte.weight"]
    assert np.shares_memory(one, other)
    with torch.device("meta"):
        model = gpt_model(PYTORCH)
    LOAD["pytorch"](model, path)
    assert model.tok_emb.weight.is_contiguous()
    assert all(p.is_contiguous() for p in model.parameters())


# ---- Memory, and what is imported ----------------------------------------------------------------

MEASURE = """
import os, re, sys
from pathlib import Path

def memory(what):
    return int(re.search(what + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def reset():
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again from what is in use
    return memory("VmRSS")

cfg = {cfg}
path = {path!r}
"""
LOADING = {
    "pytorch": """
import torch
from d2lgpt.torch.loading import load_gpt2
from d2lgpt.torch.census import count_parameters
from d2lgpt.torch.scratch import GPTModel
make = lambda: GPTModel(cfg)
def abstract(make):
    with torch.device("meta"):
        return make()
finished = lambda model: model
other = "jax"
""",
    "jax": """
import jax
from flax import nnx
from d2lgpt.jax.loading import load_gpt2
from d2lgpt.jax.census import count_parameters
from d2lgpt.jax.scratch import GPTModel
make = lambda: GPTModel(cfg, rngs=nnx.Rngs(0))
abstract = nnx.eval_shape
def finished(model):  # Python goes on while JAX works: an array not made yet has no memory yet
    jax.block_until_ready(nnx.state(model))
    return model
other = "torch"
""",
}
LOAD_AND_MEASURE = """
load_gpt2(abstract(lambda: GPTModel(tiny) if other == "jax" else GPTModel(tiny, rngs=nnx.Rngs(0))),
          tiny_path)  # whatever is imported or compiled at the first call
model = abstract(make) if kind == "abstract" else finished(make())
weights = 4 * count_parameters(model)
base = reset() - (weights if kind == "concrete" else 0)  # whatever else making it has left
finished(load_gpt2(model, path))
peak = memory("VmHWM") - base
assert other not in sys.modules, "the other backend was imported"
bound = 1.2 * (weights + os.path.getsize(path))
print(f"{peak / 2**20:.0f} MiB, bound {bound / 2**20:.0f} MiB")
assert peak <= bound
"""

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
BIG = small_config(
    vocab_size=20000, context_length=256, emb_dim=512, n_heads=8, n_layers=8, qkv_bias=True
)


def run(code):
    # Freed memory goes back to the system at once: what is measured is what is in use.
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=env
    )
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """Files of 143 MB, and of half of it."""
    folder = tmp_path_factory.mktemp("big")
    path = write_random_gpt2(folder / "float32", BIG)
    half = {k: v.bfloat16() for k, v in safetensors.torch.load_file(path).items()}
    return {"float32": path, "bfloat16": saved(folder, half, "bfloat16")}


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["abstract", "concrete"])
@pytest.mark.parametrize("backend", ["pytorch", "jax"])
def test_peak_memory_of_loading(backend, kind, dtype, big, path):
    start = MEASURE.format(cfg=BIG, path=str(big[dtype]))
    start += f"kind, tiny, tiny_path = {kind!r}, {CFG!r}, {str(path)!r}\n"
    run(start + LOADING[backend] + LOAD_AND_MEASURE)


@needs_proc
@pytest.mark.slow
def test_peak_memory_of_writing(tmp_path):
    run(
        MEASURE.format(cfg=BIG, path=str(tmp_path / "file"))
        + """
from d2lgpt.checkpoint import write_random_gpt2
base = reset()
write_random_gpt2(path, cfg)
largest = 4 * cfg["vocab_size"] * cfg["emb_dim"]
assert memory("VmHWM") - base < 1.5 * largest < os.path.getsize(path) / 2
"""
    )
