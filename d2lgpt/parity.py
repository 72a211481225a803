"""Carry weights from one backend to the other, and compare what comes out.

Equal seeds do not give equal numbers in PyTorch and JAX, so sameness is shown with equal weights:
`copy_weights` pairs the parameters of two modules by the names of their attributes, and knows what
the frameworks call the same thing (a PyTorch `weight` of shape (out, in) is an NNX `kernel` of
shape (in, out)). This module imports neither framework; it uses the ones that its caller has.
"""

import numpy as np

from d2lgpt.parameters import is_torch_tensor, pair, parameters, write


def copy_weights(source, target):
    """Copy every parameter of `source` into `target`, a module of the same structure.

    Either may be a `torch.nn.Module` or an `nnx.Module`. Parameters are paired by the path of
    attribute names that leads to them; linear weights are transposed where the backends differ.
    All pairs are checked before anything is written, so `target` gets everything or stays as it
    was. It keeps its dtypes and devices, and shares no memory with a PyTorch source.

    `target` may be abstract, that is, made without memory for its weights: under
    `torch.device("meta")`, or by `nnx.eval_shape`. It then becomes a concrete model on the CPU
    (PyTorch) or the default device (JAX). What an abstract NNX model has besides parameters, the
    random state of its dropout layers, starts from key 0 (`nnx.reseed` sets another).

    Returns:
        `target`, for convenience.

    Raises:
        TypeError: if one of the two is no module of either backend.
        ValueError: naming the parameters that have no counterpart or another shape, tied
            parameters that the other module keeps apart, or a source without values.
    """
    write(target, pair(parameters(source), parameters(target)))
    return target


def max_abs_diff(a, b) -> float:
    """The largest absolute difference of two arrays of the same shape, of either backend.

    Compared in float64. Equal infinities count as no difference; a NaN gives NaN, which no bound
    lets through. Two empty arrays differ by 0.

    Raises:
        ValueError: if the shapes differ (nothing is broadcast).
    """
    a, b = _to_numpy(a), _to_numpy(b)
    if a.shape != b.shape:
        raise ValueError(f"the shapes differ: {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore"):
        difference = np.where(a == b, 0.0, np.abs(a - b))
    return float(difference.max(initial=0.0))


def _to_numpy(array) -> np.ndarray:
    if is_torch_tensor(array):
        array = array.detach().cpu().double().numpy()
    return np.asarray(array, dtype=np.float64)
