"""Conversion of arguments to arrays that compiled code can read."""

from __future__ import annotations

import array
import ctypes
import math
from typing import Any

import numpy as np

from weft.runtime.dtypes import numpy_dtype
from weft.runtime.manifest import TensorSpec
from weft.support.errors import InvalidInputError
from weft.support.fallback import Fallback, FallbackLog, report

_KINDS = "buif"  # bool < unsigned < signed < float: implicit conversions of Python numbers


def to_numpy(value: Any, spec: TensorSpec, log: FallbackLog | None = None) -> np.ndarray:
    """``value`` as a C-contiguous array of exactly the shape and dtype of ``spec``.

    Accepts arrays with DLPack, ``__array_interface__``, ``__array__`` or the buffer protocol;
    contiguous ones are not copied. Python numbers and lists are converted to the expected dtype,
    arrays must already have it. A copy of an array is reported to ``log`` if given.
    ``InvalidInputError`` for other values.
    """
    found = value if isinstance(value, np.ndarray) else _as_array(value, spec)
    expected = spec.numpy_dtype
    if found.dtype != expected:
        if found.dtype != expected.newbyteorder():
            raise mismatch(spec, "dtype", found)
        _report_copy(found, spec, "its bytes are in foreign order", log)
        found = found.astype(expected)
    if found.shape != spec.shape:
        raise mismatch(spec, "shape", found)
    if not (found.flags.c_contiguous and found.flags.aligned):
        _report_copy(found, spec, "it is not C-contiguous" if found.flags.aligned
                     else "its memory is not aligned to its dtype", log)
        # ascontiguousarray would not copy contiguous but unaligned memory.
        found = np.array(found, order="C", copy=True)
    return found


def _report_copy(found: np.ndarray, spec: TensorSpec, why: str, log: FallbackLog | None) -> None:
    if log is not None and found.nbytes:
        report(Fallback(
            f"input {spec.name!r} is copied before the call", why,
            "one pass over its memory in each such call, about 0.2 ms per MB",
            f"copy it once and pass the copy: np.array({spec.name}, {spec.dtype!r}, order='C')"),
            log)


def with_sizes(spec: TensorSpec, value: Any, sizes: dict[str, int]) -> TensorSpec:
    """``spec`` with symbolic dimensions replaced by known sizes, else by those of ``value``."""
    if all(isinstance(size, int) for size in spec.shape):
        return spec
    found = tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
    if len(found) != len(spec.shape):
        return spec  # reading the value as an array words the error
    shape = []
    for size, given in zip(spec.shape, found, strict=True):
        if isinstance(size, str) and size.isidentifier():
            shape.append(sizes.setdefault(size, int(given)))
        else:
            shape.append(int(given) if isinstance(size, str) else size)
    return TensorSpec(spec.name, spec.dtype, tuple(shape))


def mismatch(spec: TensorSpec, part: str, found: np.ndarray) -> InvalidInputError:
    """The error for an argument with a wrong ``part``: dtype or shape."""
    help_ = None
    if part == "dtype":
        is_number = found.dtype.kind not in "OSU"
        help_ = f"arrays are not converted silently; pass {spec.name}.astype({spec.dtype!r})" \
            if is_number else "give an array of numbers"
    return InvalidInputError(
        f"input {spec.name!r} has the wrong {part}", expected=spec,
        got=f"Tensor[{found.shape}, {found.dtype}]", help=help_,
    )


def _as_array(value: Any, spec: TensorSpec) -> np.ndarray:
    try:
        if hasattr(value, "__dlpack__"):
            return _through_dlpack(value, spec)
        protocols = ("__array_interface__", "__array__")
        if isinstance(value, (memoryview, array.array)) \
                or any(hasattr(value, name) for name in protocols):
            return np.asarray(value)
        return _from_python(value, spec)
    except InvalidInputError:
        raise
    except Exception as error:  # noqa: BLE001 - the code of another library ran
        raise InvalidInputError(
            f"input {spec.name!r} cannot be read", expected=spec,
            got=f"{type(value).__name__} ({type(error).__name__}: {error})",
        ) from None


def _through_dlpack(value: Any, spec: TensorSpec) -> np.ndarray:
    device, _ = value.__dlpack_device__()
    if device != CPU:
        raise InvalidInputError(
            f"input {spec.name!r} is not in CPU memory", expected=spec,
            got=f"DLPack device {int(device)}", help="move it to the CPU first",
        )
    return from_dlpack(value)


def _from_python(value: Any, spec: TensorSpec) -> np.ndarray:
    """Numbers and nested lists; ``InvalidInputError`` for integers that are out of range."""
    plain = np.asarray(value)
    have, want = plain.dtype.kind, _kind(spec.numpy_dtype)
    signed = have == "i" and want == "u"  # decided by the values below
    if have not in _KINDS or (_KINDS.index(have) > _KINDS.index(want) and not signed):
        raise mismatch(spec, "dtype", plain)
    with np.errstate(all="ignore"):  # out-of-range values are found below
        result = plain.astype(spec.numpy_dtype)
    if not _holds(result, plain, exactly=want in "iu"):
        raise InvalidInputError(f"input {spec.name!r} has a value out of range",
                                expected=spec, got=f"{plain.min()} to {plain.max()}")
    return result


def _holds(result: np.ndarray, plain: np.ndarray, *, exactly: bool) -> bool:
    """Whether a conversion preserved integers exactly, and finite floats as finite."""
    if exactly:
        return bool(np.array_equal(result.astype(plain.dtype), plain))
    wide = result.astype(np.float64)
    return bool(np.array_equal(np.isfinite(wide), np.isfinite(plain)))


def _kind(dtype: np.dtype) -> str:
    """The kind character of a dtype, also for ml_dtypes, whose NumPy kind is V."""
    if dtype.kind != "V":
        return dtype.kind
    return {"int": "i", "uin": "u"}.get(dtype.name[:3], "f")


CPU = 1
_TYPES = {  # (type code, bits) of dlpack.h
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}


class DLTensor(ctypes.Structure):
    """``DLTensor`` of ``dlpack.h``."""

    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)


def from_dlpack(value: Any) -> np.ndarray:
    """A NumPy array that shares the memory of a DLPack object on the CPU.

    Raises the ``BufferError`` or ``RuntimeError`` of the producer or of NumPy for unsupported
    objects.
    """
    is_negated = getattr(value, "is_neg", None)
    if is_negated is not None and is_negated():  # a view that torch negates where it is read
        value = value.resolve_neg()
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError) as refusal:
        capsule = value.__dlpack__()
        found = _read(capsule)
        if found is None:
            raise refusal from None
        return found


def _read(capsule: Any) -> np.ndarray | None:
    # Called without ``max_version``, ``__dlpack__`` must return the unversioned struct.
    address = _pointer(capsule, b"dltensor")
    tensor = DLTensor.from_address(address or 0)
    name = _TYPES.get((tensor.code, tensor.bits))
    if name is None or tensor.lanes != 1:
        return None
    dtype = numpy_dtype(name)
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    return _over_memory((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, capsule)


def _over_memory(address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None,
                 dtype: np.dtype, owner: Any) -> np.ndarray:
    if math.prod(shape) == 0:
        return np.empty(shape, dtype)
    steps = strides or (0,) * len(shape)
    span = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) if strides \
        else (math.prod(shape) - 1) * dtype.itemsize
    memory = (ctypes.c_uint8 * (span + dtype.itemsize)).from_address(address)
    setattr(memory, "owner", owner)  # noqa: B010 - freed when the last view goes
    return np.ndarray(shape, dtype, memoryview(memory), 0, strides)
