"""The file in which GPT-2 was released: its layout, how to read it, and random files like it.

A released file holds the two embedding tables `wte` and `wpe`, the blocks `h.0`, `h.1`, ..., and
the final norm `ln_f`, in the safetensors format: a short header with the name, type, shape and
place of each tensor, then the numbers. Three things about it are special:

- Linear weights are stored (in, out), as OpenAI's Conv1D layer has them. That is how an NNX
  kernel is; a PyTorch weight is (out, in).
- `attn.c_attn` is query, key and value in one, side by side along the last axis.
- There is no output head: it is the token table `wte`. And there is a tensor that no model
  needs, the causal mask `attn.bias` of each block.

This module imports neither PyTorch nor JAX. It never reads pickle files, which can run code.
"""

import json
import math
import os
import re
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from d2lgpt import files
from d2lgpt.checks import check_choice
from d2lgpt.config import GPT_CONFIG_124M, check_config, check_whole
from d2lgpt.parameters import Parameter, Stored, check_writable, pair, parameters

_MASK = re.compile(r"h\.\d+\.attn\.bias")
_IGNORED = re.compile(r"h\.\d+\.attn\.masked_bias")

#: What `gpt2_file` finds: the weights that OpenAI released, or the small model in their place.
RELEASED, STAND_IN = "released", "stand-in"

#: In words for a page, with which a sentence can start or end.
FILE_NAMES = {
    RELEASED: "GPT-2 with 124 million parameters, as OpenAI released it",
    STAND_IN: "the stand-in: a small GPT-2 trained on The Time Machine, not the released model",
}

_DATA = Path(__file__).parent / "data"

# Of each block, what the file has beside the mask: name -> shape in units of D = emb_dim.
_BLOCK = {
    "ln_1.weight": (1,),
    "ln_1.bias": (1,),
    "attn.c_attn.weight": (1, 3),
    "attn.c_attn.bias": (3,),
    "attn.c_proj.weight": (1, 1),
    "attn.c_proj.bias": (1,),
    "ln_2.weight": (1,),
    "ln_2.bias": (1,),
    "mlp.c_fc.weight": (1, 4),
    "mlp.c_fc.bias": (4,),
    "mlp.c_proj.weight": (4, 1),
    "mlp.c_proj.bias": (1,),
}

#: Where the tensors go in Part I's `GPTModel`: the layer of the file -> the layer of the model.
#: Three layers for one: the thirds of `c_attn`, in this order. Names of both backends are those of
#: PyTorch (NNX says `kernel` or `embedding` where PyTorch says `weight`).
GPT_MODEL_NAMES = {
    "wte": "tok_emb",
    "wpe": "pos_emb",
    "h.{}.ln_1": "trf_blocks.{}.norm1",
    "h.{}.attn.c_attn": (
        "trf_blocks.{}.att.W_query",
        "trf_blocks.{}.att.W_key",
        "trf_blocks.{}.att.W_value",
    ),
    "h.{}.attn.c_proj": "trf_blocks.{}.att.out_proj",
    "h.{}.ln_2": "trf_blocks.{}.norm2",
    "h.{}.mlp.c_fc": "trf_blocks.{}.ff.layers.0",
    "h.{}.mlp.c_proj": "trf_blocks.{}.ff.layers.2",
    "ln_f": "final_norm",
}

#: The same for Part II's `GPT`, whose attention keeps query, key and value in one layer too.
GPT_NAMES = {
    "wte": "token_emb",
    "wpe": "pos_emb",
    "h.{}.ln_1": "blks.{}.norm1",
    "h.{}.attn.c_attn": "blks.{}.attention.W_qkv",
    "h.{}.attn.c_proj": "blks.{}.attention.W_o",
    "h.{}.ln_2": "blks.{}.norm2",
    "h.{}.mlp.c_fc": "blks.{}.ffn.W_1",
    "h.{}.mlp.c_proj": "blks.{}.ffn.W_2",
    "ln_f": "norm",
}


def gpt2_layout(cfg: dict) -> dict[str, tuple[int, ...]]:
    """Name -> shape of every tensor in a released file for the configuration `cfg`.

    For the 124M configuration: 160 tensors, 137,022,720 numbers (12 masks among them).
    The heads leave no trace in the file, nor do `drop_rate` and `qkv_bias` (there are biases).

    Raises:
        ValueError: for an impossible configuration.
    """
    check_config(cfg)
    D, T = cfg["emb_dim"], cfg["context_length"]
    layout = {"wte.weight": (cfg["vocab_size"], D), "wpe.weight": (T, D)}
    for i in range(cfg["n_layers"]):
        layout[f"h.{i}.attn.bias"] = (1, 1, T, T)  # the mask
        for name, shape in _BLOCK.items():
            layout[f"h.{i}.{name}"] = tuple(n * D for n in shape)
    return {**layout, "ln_f.weight": (D,), "ln_f.bias": (D,)}


def write_random_gpt2(path: str | Path, cfg: dict, seed: int = 0) -> Path:
    """Write a file in exactly the released layout, with random numbers in float32.

    It is for tests of shape, speed and memory. All that can matter to the logits does (the masks
    and the biases of the keys cannot: softmax removes those): weights have the standard deviation
    1 / sqrt(in), scales lie around 1, biases around 0. The same seed gives the same numbers. One
    tensor at a time is in memory; the file gets its name when it is whole.

    Raises:
        ValueError: for an impossible configuration, and a seed that is no whole number.
    """
    rng = np.random.default_rng(check_whole("seed", seed, least=0))
    return write_gpt2(path, cfg, lambda name, shape: _random(name, shape, rng))


def write_gpt2(
    path: str | Path,
    cfg: dict,
    tensor: Callable[[str, tuple[int, ...]], np.ndarray],
    dtype: str = "F32",
    metadata: dict[str, str] | None = None,
) -> Path:
    """Write a file in exactly the released layout; it gets its name when it is whole.

    Args:
        path: where; a file of that name is replaced.
        cfg: the configuration.
        tensor: gives the numbers of a tensor from its name and shape. It is called for one after
            the other, in the order of `gpt2_layout`, and what it gives is converted to `dtype`.
        dtype: "F32", or "F16" for half precision.
        metadata: what else the header is to say.

    Raises:
        ValueError: for an impossible configuration or another dtype.
    """
    check_choice("dtype", dtype, ("F32", "F16"))
    path, kind = Path(path), np.dtype(_DTYPES[dtype])
    layout = gpt2_layout(cfg)
    header, end = {"__metadata__": {"format": "pt", **(metadata or {})}}, 0
    for name, shape in layout.items():
        start, end = end, end + kind.itemsize * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the numbers start at a multiple of 8 bytes
    with files.part_of(path) as part:
        with part.open("wb") as stream:
            stream.write(len(text).to_bytes(8, "little") + text)
            for name, shape in layout.items():
                stream.write(np.ascontiguousarray(tensor(name, shape), kind).reshape(shape).data)
        part.replace(path)
    return path


def _random(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if len(shape) == 4:
        return np.tri(shape[-1], dtype=np.float32).reshape(shape)
    numbers = rng.standard_normal(shape, dtype=np.float32)
    if len(shape) == 1:
        numbers *= np.float32(0.1)
        return numbers + np.float32("ln_" in name and name.endswith("weight"))
    fan_in = shape[1] if name in ("wte.weight", "wpe.weight") else shape[0]
    numbers *= np.float32(fan_in**-0.5)
    return numbers


class GPT2File(NamedTuple):
    """The path of a GPT-2 file, and its kind: "released" or "stand-in"."""

    path: Path
    kind: str


def gpt2_file() -> GPT2File:
    """The best GPT-2 file at hand, and what it is: `path, kind = gpt2_file()`.

    "released" are the weights of GPT-2 124M, from the folder `D2LGPT_DATA`, the cache, or the
    network into the cache (548 MB; see `d2lgpt.files`). Where they cannot be had, their place is
    taken by the "stand-in", which comes with this package: a small GPT-2 in the same layout,
    trained on *The Time Machine* alone. `FILE_NAMES[kind]` says it in words. The network is tried
    once in a process, and never with `D2LGPT_OFFLINE=1`. The environment variable `D2LGPT_GPT2`
    decides otherwise: "stand-in" takes that without a look elsewhere, "released" takes nothing
    else.

    Raises:
        ValueError: if `D2LGPT_GPT2` is neither.
        FileNotFoundError: if it is "released", and that file cannot be had.
    """
    wanted = os.environ.get("D2LGPT_GPT2", "")
    if wanted:
        check_choice("the environment variable D2LGPT_GPT2", wanted, (RELEASED, STAND_IN))
    if wanted == STAND_IN:
        return GPT2File(stand_in_path(), STAND_IN)
    if wanted == RELEASED:
        return GPT2File(files.find(files.GPT2), RELEASED)
    try:
        return GPT2File(files.find(files.GPT2, network=False), RELEASED)
    except FileNotFoundError:
        path = None if files._offline() else _from_the_network()
    return GPT2File(path, RELEASED) if path else GPT2File(stand_in_path(), STAND_IN)


@cache
def _from_the_network() -> Path | None:
    try:
        return files.find(files.GPT2)
    except FileNotFoundError:
        return None


def stand_in_path() -> Path:
    """The stand-in checkpoint, made by `make stand-in`; `gpt2_file` says more."""
    return _DATA / "gpt2-stand-in.safetensors"


def held_out_text() -> str:
    """A page of *The Time Machine* that the stand-in has not seen: how its last chapter begins."""
    return held_out_path().read_text(encoding="utf-8")


def held_out_path() -> Path:
    """The file of `held_out_text`."""
    return _DATA / "held-out.txt"


def gpt2_file_config(path: str | Path) -> dict:
    """The configuration of the model in a GPT-2 file, for `GPTModel`.

    All sizes can be read off the tensors but one: the heads leave no trace. A file may name their
    number in its metadata (`n_heads`), as the stand-in does; without that, a head has 64 numbers,
    as in all four released models.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no whole safetensors file, or no GPT-2.
    """
    checkpoint = Checkpoint(path)
    shapes = checkpoint.shapes
    for name in ("wte.weight", "wpe.weight"):
        if len(shapes.get(name, ())) != 2:
            raise ValueError(
                f"{path} is no GPT-2: it has no table {name}{_part_of_several(checkpoint.path)}"
            )
    (vocab_size, emb_dim), (context_length, _) = shapes["wte.weight"], shapes["wpe.weight"]
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
    if "n_heads" not in metadata and emb_dim % 64:
        raise ValueError(
            f"{path} does not say how many heads its model has, and its width {emb_dim} is no "
            "multiple of 64, the width of a head in the released models: write the configuration"
        )
    heads = metadata.get("n_heads", str(emb_dim // 64))
    if not heads.isdecimal() or not int(heads) or emb_dim % int(heads):
        raise ValueError(
            f"{path} says in its metadata that its model has n_heads={heads!r}, which is no whole "
            f"number that divides its width {emb_dim}: write the configuration"
        )
    sizes = {
        "vocab_size": vocab_size,
        "context_length": context_length,
        "emb_dim": emb_dim,
        "n_heads": int(heads),
        "n_layers": len({name.split(".")[1] for name in shapes if name.startswith("h.")}),
    }
    return check_config({**GPT_CONFIG_124M, **sizes, "qkv_bias": True})


class Checkpoint:
    """A GPT-2 file, open for reading: `checkpoint[name]` is the array of one tensor.

    The file is memory-mapped: opening it reads the header only, and an array is a view of the
    file's pages (which the system reads when they are looked at). Writing to an array changes
    this process's copy of the page, never the file. A bfloat16 tensor, for which NumPy has no
    type, comes as float32, and a tensor that does not start at a multiple of its item size (old
    files have such) as a copy. Leave the file as it is while arrays of it live: replace it, do
    not write into it.

    Names are normalised: a prefix `transformer.` is cut off. The masks `attn.bias`, which no model
    needs, are in `masks`, not in `shapes`; `attn.masked_bias` of some files is in neither.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is no safetensors file, or holds other types than floating-point ones.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"{self.path} {_why_no_file(self.path)}")
        start, header = _read_header(self.path)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.masks: dict[str, tuple[int, ...]] = {}
        self._entries = {}
        for full_name, entry in header.items():
            name = full_name.removeprefix("transformer.")
            if name in self.shapes or name in self.masks:
                raise ValueError(f"{self.path} holds {name} twice, with and without a prefix")
            if _IGNORED.fullmatch(name):
                continue
            if _MASK.fullmatch(name):
                self.masks[name] = tuple(entry["shape"])
                continue
            if entry["dtype"] not in _DTYPES:
                raise ValueError(
                    f"{name} in {self.path} is of type {entry['dtype']}: "
                    f"only {', '.join(_DTYPES)} can be loaded"
                )
            self.shapes[name] = tuple(entry["shape"])
            self._entries[name] = entry["dtype"], start + entry["data_offsets"][0]
        # "c": copy on write.
        self._bytes = np.memmap(self.path, np.uint8, mode="c").view(np.ndarray)

    def __getitem__(self, name: str) -> np.ndarray:
        kind, offset = self._entries[name]
        array = np.ndarray(self.shapes[name], _DTYPES[kind], self._bytes, offset)
        if array.flags.aligned and kind != "BF16":
            return array
        # Read rather than viewed: pages of the map would stay in memory beside the copy.
        array = np.fromfile(self.path, array.dtype, array.size, offset=offset).reshape(array.shape)
        if kind == "BF16":  # the upper half of a float32
            array = array.astype(np.uint32)
            array <<= 16
            array = array.view(np.float32)
        return array


_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def _read_header(path: Path) -> tuple[int, dict]:
    """Where the numbers start, and the header's entries, of a file that is whole and valid."""
    try:
        with safe_open(path, framework="np"):  # checks the header, and the length against it
            pass
    except SafetensorError as error:
        raise ValueError(f"{path} is {_what_it_is(path)} ({error})") from None
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(length))
    header.pop("__metadata__", None)
    return 8 + length, header


def _why_no_file(path: Path) -> str:
    if path.is_dir():
        there = sorted(file.name for file in path.glob("*.safetensors"))
        hint = f", such as {there[0]} in it" if there else ""
        return f"is a folder: give the path of a safetensors file{hint}"
    state = "is no ordinary file" if path.exists() else "does not exist"
    return f"{state}: give the path of a safetensors file"


# How a file starts (white space and capitals aside) -> what it is, and what to do.
_AGAIN = "download the file again"
_OTHER = "download the safetensors file instead"
_STARTS = {
    b"<!doctype": f"a web page saved under this name: {_AGAIN}",
    b"<html": f"a web page saved under this name: {_AGAIN}",
    b"<?xml": f"a web page saved under this name: {_AGAIN}",
    b"version https://git-lfs": f"a Git LFS pointer, not the file that it points to: {_AGAIN}",
    b"\x80": f"a pickle file, which is never opened, because it can run code: {_OTHER}",
    b"\x1f\x8b": "compressed with gzip: unpack it first, for example with gunzip",
    b"\x93numpy": "a NumPy array (.npy), not a checkpoint: " + _OTHER,
    b"\x89hdf": f"an HDF5 file, as Keras writes them: {_OTHER}",
    b"gguf": f"a GGUF file, as llama.cpp reads them: {_OTHER}",
}


def _what_it_is(path: Path) -> str:
    with path.open("rb") as stream:
        start = stream.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not path.stat().st_size:
        return f"an empty file: {_AGAIN}"
    for first, words in _STARTS.items():
        if start.startswith(first):
            return words
    if start.startswith(b"pk\x03\x04"):
        return _which_zip(path, start)
    if start.startswith((b"{", b"[")):
        return _which_json(path)
    return f"no whole safetensors file, perhaps cut short: {_AGAIN}"


def _which_zip(path: Path, start: bytes) -> str:
    names = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    if b"data.pkl" in start or any(name.endswith("data.pkl") for name in names):
        return _STARTS[b"\x80"]
    if names and all(name.endswith(".npy") for name in names):
        return (
            "an archive of NumPy arrays (.npz): write it as a safetensors file, "
            "with safetensors.numpy.save_file(dict(numpy.load(path)), new_path)"
        )
    return "a zip archive: unpack it, and give the path of the safetensors file in it"


def _which_json(path: Path) -> str:
    try:
        shards = sorted({*json.loads(path.read_text("utf-8"))["weight_map"].values()})
    except (ValueError, TypeError, KeyError, AttributeError):
        return f"a JSON file, with words in place of weights: {_OTHER}"
    index = f"the index of a checkpoint in {len(shards)} files ({', '.join(shards)})"
    if not all(shard.endswith(".safetensors") for shard in shards):
        return f"{index}, which are no safetensors files: {_OTHER}"
    return f"{index}: {_JOIN}"


_JOIN = "join them into one, with load_file and save_file of safetensors.numpy, and load that"


def _part_of_several(path: Path) -> str:
    """What the name of a file such as model-00001-of-00002.safetensors adds to an error."""
    part = re.search(r"-0*(\d+)-of-0*(\d+)\.", path.name)
    return f" (it is file {part[1]} of {part[2]} of a checkpoint: {_JOIN})" if part else ""


def pair_gpt2(checkpoint: Checkpoint, model) -> list[tuple[Parameter, Parameter]]:
    """Pairs (tensor, or third of a tensor, of the file; parameter of the model), all checked.

    `model` is a `GPTModel` or `GPT` of either backend, or a class with the same attributes; it may
    be abstract. Nothing is written. The output head of a `GPTModel` has no pair: it is to become
    the token table. A file may bring an `lm_head.weight` if that is `wte.weight` once more.

    Raises:
        TypeError: if the model is neither of the two.
        ValueError: if the model is not built as GPT-2 is, and if the file does not fit it: names
            each tensor that is missing, surplus or of another shape, with both shapes. Also for
            an `lm_head.weight` of its own, which a model with a tied head has no place for.
    """
    names, options = _names(model)
    targets = [p for p in parameters(model) if p.names != {"out_head.weight"}]
    shapes = {name: p.shape for p in targets for name in p.names}
    layout, pieces = _layout_for(model, names, shapes), {}
    for name in layout:
        if not _MASK.fullmatch(name):
            pieces[name] = _pieces(name, names, shapes)
    _check_model(model, pieces, targets, options)
    check_writable(model)
    _check_file(checkpoint, layout)

    sources = [
        Parameter(
            path=name if len(to) == 1 else f"{name} (part {i + 1} of {len(to)})",
            value=_stored(checkpoint, name, i, len(to)),
            transposed=name.endswith(".weight") and ".c_" in name,  # Conv1D: (in, out)
            names={to[i]},
        )
        for name, to in pieces.items()
        for i in range(len(to))
    ]
    return pair(sources, targets)


def _stored(checkpoint: Checkpoint, name: str, i: int, parts: int) -> Stored:
    """Part `i` of a tensor, split along its last axis."""
    *first, last = checkpoint.shapes[name]
    width = last // parts
    return Stored(
        shape=(*first, width),
        read=lambda: checkpoint[name][..., i * width : (i + 1) * width],
    )


def _names(model) -> tuple[dict, str]:
    """The table of names for a model, and the options with which it is GPT-2."""
    if all(hasattr(model, name) for name in ("tok_emb", "trf_blocks", "out_head")):
        return GPT_MODEL_NAMES, "qkv_bias=True"
    if all(hasattr(model, name) for name in ("token_emb", "blks", "norm")):
        return GPT_NAMES, "pos='learned', norm='layer', act='gelu', pre_norm=True, bias=True"
    inside = ": hand in the model in it" if type(model).__name__ == "Sequential" else ""
    raise TypeError(
        f"GPT-2 loads into a GPTModel or a GPT, not into a {type(model).__name__}{inside}"
    )


def _blocks(model):
    blocks = model.trf_blocks if hasattr(model, "trf_blocks") else model.blks
    return getattr(blocks, "layers", blocks)  # NNX: Sequential.layers


def _layout_for(model, names: dict, shapes: dict) -> dict[str, tuple[int, ...]]:
    vocab_size, emb_dim = shapes[f"{names['wte']}.weight"]
    context_length, _ = shapes.get(f"{names['wpe']}.weight", (1, emb_dim))
    sizes = {"vocab_size": vocab_size, "context_length": context_length, "emb_dim": emb_dim}
    rest = {"n_heads": 1, "drop_rate": 0.0, "qkv_bias": True}  # leave no trace in the layout
    return gpt2_layout({**sizes, "n_layers": len(_blocks(model)), **rest})


def _pieces(name: str, names: dict, shapes: dict) -> list[str]:
    """The parameters of the model that a tensor of the file goes into, side by side."""
    layer, _, kind = name.rpartition(".")
    i = next(iter(re.findall(r"^h\.(\d+)\.", name)), "")
    to = names[re.sub(r"^h\.\d+\.", "h.{}.", layer)]
    layers = [part.format(i) for part in ([to] if isinstance(to, str) else to)]
    own = {"weight": "scale", "bias": "shift"}[kind]  # what Part I's LayerNorm calls them
    return [f"{part}.{own if f'{part}.{own}' in shapes else kind}" for part in layers]


def _check_model(model, pieces: dict, targets: list[Parameter], options: str) -> None:
    wanted = {piece for part in pieces.values() for piece in part}
    there = {name for p in targets for name in p.names}
    problems = [f"it has no {name}" for name in sorted(wanted - there)]
    problems += [f"it has {p}" for p in targets if not p.names & wanted]
    if not getattr(_blocks(model)[0], "pre_norm", True):
        problems.append("its blocks normalize after the shortcut")
    if problems:
        raise ValueError(
            f"the model is not built as GPT-2 is, nothing was loaded: build it with {options}"
            + _listed(problems)
        )


def _check_file(checkpoint: Checkpoint, layout: dict[str, tuple[int, ...]]) -> None:
    masks = {name: shape for name, shape in layout.items() if _MASK.fullmatch(name)}
    head = {"lm_head.weight": layout["wte.weight"]}
    needed = {name: shape for name, shape in layout.items() if name not in masks}
    allowed = {**needed, **masks, **head}
    found = {**checkpoint.masks, **checkpoint.shapes}
    problems = []
    for name, shape in needed.items():
        if name not in found:
            problems.append(f"{name} is missing: the model needs it with shape {shape}")
    for name, shape in found.items():
        if name not in allowed:
            problems.append(f"{name} of shape {shape} is surplus: the model has no place for it")
        elif shape != allowed[name]:
            problems.append(
                f"{name} has shape {shape} in the file, but the model needs {allowed[name]}"
            )
    if (
        not problems
        and "lm_head.weight" in found
        and not np.array_equal(checkpoint["lm_head.weight"], checkpoint["wte.weight"])
    ):
        problems.append(
            f"lm_head.weight {found['lm_head.weight']} holds other numbers than wte.weight: "
            "GPT-2's head is its token table, and the model has no place for another"
        )
    if problems:
        raise ValueError(
            f"{checkpoint.path} does not fit the model, nothing was loaded"
            f"{_part_of_several(checkpoint.path)}:{_listed(problems)}"
        )


def _listed(problems: list[str]) -> str:
    more = [f"and {len(problems) - 10} more"] if len(problems) > 10 else []
    return "".join(f"\n  {problem}" for problem in problems[:10] + more)
