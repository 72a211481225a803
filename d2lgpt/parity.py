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

    Either may be a `torch.nn.Module` or an `nnx.Module`, and wrapped by `torch.compile`,
    `DataParallel` or `DistributedDataParallel`. Parameters are paired by the path of
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

    Compared in float64 (for complex numbers: the absolute value of the difference), whole numbers
    exactly, however large. Equal infinities count as no difference; a NaN gives NaN, which no
    bound lets through, even where both arrays have it. Two empty arrays differ by 0.

    Raises:
        ValueError: if the shapes differ (nothing is broadcast), or an array is abstract.
        TypeError: for what holds no numbers.
    """
    a, b = _to_numpy(a), _to_numpy(b)
    if a.shape != b.shape:
        raise ValueError(f"the shapes differ: {a.shape} and {b.shape}")
    with np.errstate(invalid="ignore", over="ignore"):
        return float(_difference(a, b).max(initial=0.0))


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if "c" in (a.dtype.kind, b.dtype.kind):
        real, imaginary = _difference(a.real, b.real), _difference(a.imag, b.imag)
        no_number = np.isnan(real) | np.isnan(imaginary)  # hypot(inf, nan) would be inf
        return np.where(no_number, np.nan, np.hypot(real, imaginary))
    if _is_long(a) or _is_long(b):
        a, b = _as_python(a), _as_python(b)
    else:
        dtype = np.result_type(a, b, np.float64)
        a, b = a.astype(dtype), b.astype(dtype)
    return np.where(a == b, 0.0, np.abs(a - b)).astype(np.float64)


def _is_long(array: np.ndarray) -> bool:
    """Whether float64 would round some of these numbers, which are whole."""
    if array.dtype.kind not in "iu" or not array.size:
        return False
    return max(-int(array.min()), int(array.max())) > 2**53


# Python subtracts whole numbers of any length without rounding, and float64 has whole numbers too.
_as_python = np.frompyfunc(lambda x: int(x) if float(x).is_integer() else float(x), 1, 1)


def _to_numpy(array) -> np.ndarray:
    kind = type(array).__name__
    if kind == "ShapeDtypeStruct" or (is_torch_tensor(array) and array.is_meta):
        raise ValueError("an abstract array has a shape, but no numbers to compare")
    if is_torch_tensor(array):
        array = array.detach().cpu().to_dense()
        if array.is_floating_point():  # NumPy lacks bfloat16 and others
            array = array.double()
        elif array.is_complex():
            array = array.cdouble()
        array = array.numpy(force=True)
    array = np.asarray(array)
    if array.dtype.kind == "V" and array.dtype.type is not np.void:  # bfloat16 and others of JAX
        array = array.astype(np.float64)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"max_abs_diff compares numbers, not a {kind} of {array.dtype}")
    return array
