"""The parameters of a module of either backend, seen in one way, and how to write them.

`d2lgpt.parity` and the loading of files stand on this. Parameters go by the names and the
orientation that they have in PyTorch, (out, in) for a linear weight. This module imports neither
framework; it uses the ones that its caller has.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Stored:
    """A value in a file: `read()` gives it as a NumPy array that nobody else writes to."""

    shape: tuple[int, ...]
    read: Callable[[], np.ndarray]


@dataclass
class Parameter:
    """One parameter of a module, seen as PyTorch would name and orient it."""

    path: str  # where it is in its own module, for messages
    value: Any  # torch.nn.Parameter or nnx.Param; `Stored` if it is in a file
    transposed: bool  # (in, out) as an NNX kernel is, where PyTorch has (out, in)
    names: set[str] = field(default_factory=set)  # all its names in PyTorch's terms; > 1 if tied

    @property
    def shape(self) -> tuple[int, ...]:
        shape = tuple(self.value.shape)
        return shape[::-1] if self.transposed else shape

    def __str__(self) -> str:
        return f"{self.path} {tuple(self.value.shape)}"


def _is_torch(module) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(module, torch.nn.Module)


def _is_nnx(module) -> bool:
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(module, nnx.Module)


def check_module(module, kind: type | None = None) -> None:
    """Raise TypeError unless `module` is a module: of `kind`, a backend's, or else of any."""
    if isinstance(module, kind) if kind else _is_torch(module) or _is_nnx(module):
        return
    kinds = {True: "a torch.nn.Module", False: "an nnx.Module"}
    needed = kinds[kind.__module__.startswith("torch")] if kind else " or ".join(kinds.values())
    name = type(module).__name__
    if _is_torch(module) or _is_nnx(module):
        raise TypeError(
            f"{needed} is needed, not a {name} of the other backend, {kinds[_is_torch(module)]}"
        )
    hint = ": hand in the module itself, not what calls it" if callable(module) else ""
    raise TypeError(f"{needed} is needed, not a {name}{hint}")


def unwrapped(module):
    """The module that PyTorch was told to compile or to copy to several devices, or the module.

    `torch.compile`, `DataParallel` and `DistributedDataParallel` put it into one of their own.
    """
    while _is_torch(module):
        parallel = sys.modules["torch"].nn.parallel
        if "_orig_mod" in module._modules:  # torch.compile
            module = module._orig_mod
        elif isinstance(module, (parallel.DataParallel, parallel.DistributedDataParallel)):
            module = module.module
        else:
            break
    return module


def parameters(module) -> list[Parameter]:
    """The parameters of a module, each once, with all the names that lead to it."""
    check_module(module)
    module = unwrapped(module)
    found = _walk_torch(module) if _is_torch(module) else _walk_nnx(module)
    found_once: dict[int, Parameter] = {}
    for name, path, value, transposed in found:
        parameter = found_once.setdefault(id(value), Parameter(path, value, transposed))
        parameter.names.add(name)
    if _is_nnx(module):
        _check_all_found(module, found_once)
    return list(found_once.values())


def _walk_torch(module) -> Iterator[tuple[str, str, Any, bool]]:
    for path, value in module.named_parameters(remove_duplicate=False):
        name = path.replace("_orig_mod.", "")  # a part of the module may be compiled
        yield name, path, value, False


def _walk_nnx(node, name: tuple = (), path: tuple = ()) -> Iterator[tuple[str, str, Any, bool]]:
    """Walk through an NNX module and say what PyTorch would call each parameter."""
    from flax import nnx

    # The layers that the two frameworks name differently; a module of one's own keeps its names.
    renamed = {
        nnx.Linear: {"kernel": "weight"},
        nnx.Embed: {"embedding": "weight"},
        nnx.LayerNorm: {"scale": "weight"},
        nnx.RMSNorm: {"scale": "weight"},
    }
    if isinstance(node, nnx.Param):
        yield ".".join(name), ".".join(path), node, False
        return
    if isinstance(node, nnx.Sequential):  # PyTorch counts the layers directly under its name
        yield from _walk_nnx(node.layers, name, (*path, "layers"))
        return
    if isinstance(node, nnx.Module):
        children = vars(node).items()
    elif isinstance(node, dict):
        children = node.items()
    elif isinstance(node, (list, tuple)) or type(node).__name__ == "List":  # nnx.List, from 0.12
        children = enumerate(node)
    else:
        return
    names = next((table for kind, table in renamed.items() if isinstance(node, kind)), {})
    for key, child in children:
        to = names.get(key, str(key))
        for *found, transposed in _walk_nnx(child, (*name, to), (*path, str(key))):
            yield *found, transposed or (key == "kernel" and to == "weight")


def _check_all_found(module, found: dict[int, Parameter]) -> None:
    """Raise ValueError if an NNX module keeps a parameter where `_walk_nnx` does not look."""
    from flax import nnx

    for path, node in nnx.iter_graph(module):
        if isinstance(node, nnx.Param) and id(node) not in found:
            raise ValueError(
                f"{type(module).__name__} keeps the parameter {'.'.join(map(str, path))} in a "
                "container without counterpart in PyTorch: use modules, lists and dicts"
            )


def pair(source: list[Parameter], target: list[Parameter]) -> list[tuple[Parameter, Parameter]]:
    """Pairs (from, to), or a ValueError that lists what does not fit."""
    by_name = {name: parameter for parameter in source for name in parameter.names}
    problems, pairs, used = [], [], set()
    for to in target:
        matches = {id(by_name[name]): by_name[name] for name in to.names if name in by_name}
        if not matches:
            problems.append(f"{to} of the target is not in the source")
        elif len(matches) > 1:
            tied = " and ".join(sorted(match.path for match in matches.values()))
            problems.append(f"{to} of the target is tied, but the source keeps {tied} apart")
        else:
            (match,) = matches.values()
            if id(match) in used:
                problems.append(f"{match} of the source is tied, but the target keeps it apart")
            elif match.shape != to.shape:
                problems.append(f"{match} of the source does not fit {to} of the target")
            elif is_abstract(match.value):
                problems.append(f"{match} of the source has no values (an abstract model)")
            used.add(id(match))
            pairs.append((match, to))
    problems += [
        f"{parameter} of the source is not in the target"
        for parameter in source
        if id(parameter) not in used
    ]
    if problems:
        shown = "\n  ".join(problems[:10])
        more = f"\n  and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise ValueError(f"the modules differ, nothing was copied:\n  {shown}{more}")
    return pairs


def check_writable(target) -> list:
    """What of `target`, a module that may be abstract, is to be filled beside its parameters.

    That is random state of an NNX module. Raise ValueError if it is anything else.
    """
    if _is_torch(target):
        rest = []
        lost = [name for name, buffer in target.named_buffers() if buffer.is_meta]
    else:
        from flax import nnx

        variables = [node for _, node in nnx.iter_graph(target) if isinstance(node, nnx.Variable)]
        rest = [v for v in variables if is_abstract(v) and not isinstance(v, nnx.Param)]
        lost = [f"a {type(v).__name__}" for v in rest if not isinstance(v, nnx.RngState)]
    if lost:
        raise ValueError(f"the abstract target has state that nobody can fill: {', '.join(lost)}")
    return rest


def write(target, pairs: list[tuple[Parameter, Parameter]]) -> None:
    """Write the first of each pair into the second, a parameter of the module `target`.

    A parameter that is concrete keeps its dtype and device, an abstract one becomes concrete. It
    shares no memory with another module; in PyTorch it may share memory with a file, where dtype
    and orientation allow. What is stored is read one by one, so no more than one array of it is
    in memory beside both.

    Raises:
        ValueError: before anything is written, if an abstract target has state that nobody fills.
    """
    rest = check_writable(target)
    if _is_torch(target):
        _write_torch(target, pairs)
    else:
        _write_nnx(target, pairs, rest)


def is_abstract(value) -> bool:
    """Whether a parameter has a shape and a dtype, but no memory."""
    if isinstance(value, Stored):
        return False
    if is_torch_tensor(value):
        return value.is_meta
    return type(_read_nnx(value)).__name__ == "ShapeDtypeStruct"


def is_torch_tensor(value) -> bool:
    """Whether `value` is a tensor of PyTorch; False where PyTorch is not loaded."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _read_nnx(variable):
    """The array of an NNX variable (`.value` is deprecated from Flax 0.12 on)."""
    return variable.get_value() if hasattr(variable, "get_value") else variable.value


def _assign_nnx(variable, array) -> None:
    """Put an array into an NNX variable, an abstract one included (unlike `variable[...]`)."""
    if hasattr(variable, "set_value"):
        variable.set_value(array)
    else:
        variable.value = array


def _write_torch(target, pairs) -> None:
    import torch

    fresh = {}
    with torch.no_grad():
        for match, to in pairs:
            tensor = _to_torch(match.value)
            if match.transposed:
                tensor = tensor.T
            if to.value.is_meta:
                tensor = tensor.to(to.value.dtype)
                if isinstance(match.value, Stored):
                    tensor = tensor.contiguous()
                else:  # share no memory with the source
                    tensor = tensor.clone(memory_format=torch.contiguous_format)
                fresh[id(to.value)] = torch.nn.Parameter(tensor, to.value.requires_grad)
            else:
                to.value.copy_(tensor)
    if fresh:  # one object for all names of a parameter: tied stays tied
        named = target.named_parameters(remove_duplicate=False)
        state = {name: fresh[id(old)] for name, old in named if id(old) in fresh}
        target.load_state_dict(state, assign=True, strict=False)


def _write_nnx(target, pairs, rest: list) -> None:
    import jax
    from flax import nnx

    for match, to in pairs:
        old = _read_nnx(to.value)
        array = _to_jax(match.value, old.dtype, transpose=match.transposed != to.transposed)
        # An array stays where it was put. One that nobody put anywhere is where JAX puts new
        # arrays, and stays free to go: a mixture of both kinds would be compiled for twice.
        if not is_abstract(to.value) and old.committed:
            array = jax.device_put(array, old.sharding)
        elif array.committed:
            array = jax.numpy.asarray(np.asarray(array))
        _assign_nnx(to.value, array)
    for i, variable in enumerate(rest):
        if isinstance(variable, nnx.RngKey):
            _assign_nnx(variable, jax.random.fold_in(jax.random.key(0), i))
        else:
            _assign_nnx(variable, jax.numpy.zeros_like(_read_nnx(variable)))
    # JAX copies while Python goes on: wait, so that from now on the source may change.
    jax.block_until_ready([_read_nnx(to.value) for _, to in pairs])


def _to_torch(value):
    """A tensor on the CPU that views the numbers of a parameter of either backend."""
    if is_torch_tensor(value):
        return value.detach()
    import torch

    if isinstance(value, Stored):
        return torch.from_numpy(value.read())
    import jax

    return torch.from_dlpack(jax.device_put(_read_nnx(value), jax.devices("cpu")[0]))


def _to_jax(value, dtype, transpose: bool):
    """A JAX array of the numbers of a parameter, which shares memory with nothing else."""
    import jax
    import jax.numpy as jnp

    if isinstance(value, Stored):
        array = np.asarray(value.read(), dtype)
        if array.ctypes.data % 64 == 0:  # then JAX would not copy, but keep the pages of the file
            array = array.copy()
        return jax.device_put(array.T if transpose else array)  # jnp.asarray copies twice
    if not is_torch_tensor(value):
        array = _read_nnx(value)
        return jnp.array(array.T if transpose else array, dtype=dtype, copy=True)
    import torch

    tensor = value.detach().to("cpu", getattr(torch, dtype.name))
    # The one copy: nothing else knows of the clone, so JAX may take over its memory.
    tensor = (tensor.T if transpose else tensor).clone(memory_format=torch.contiguous_format)
    return jnp.from_dlpack(tensor)
