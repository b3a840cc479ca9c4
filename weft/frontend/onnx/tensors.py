"""Conversion of ``TensorProto`` to NumPy arrays, with checks of all sizes in the file.

Paths of external data come from the model and are checked before they are used.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np

from weft.frontend.onnx.protos import TensorProto
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, UnsupportedModelError

_NAMES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
    TensorProto.FLOAT8E4M3FN: "float8_e4m3fn",
    TensorProto.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    TensorProto.FLOAT8E5M2: "float8_e5m2",
    TensorProto.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    TensorProto.FLOAT8E8M0: "float8_e8m0fnu",
    TensorProto.FLOAT4E2M1: "float4_e2m1fn",
    TensorProto.INT4: "int4",
    TensorProto.UINT4: "uint4",
    TensorProto.INT2: "int2",
    TensorProto.UINT2: "uint2",
}


def dtype_name(code: int) -> str:
    """Return the ONNX name of an element type, for example ``FLOAT``."""
    known = {v.number: v.name for v in TensorProto.DataType.DESCRIPTOR.values}
    return known.get(code, f"number {code}")


def dtype_of(code: int, what: str, where: object) -> DType:
    """Return the weft dtype of an ONNX element type; ``what`` names the tensor in the message.

    Raises ``UnsupportedModelError`` for an unsupported type and ``InvalidModelError`` for an
    unknown code.
    """
    name = _NAMES.get(code)
    if name is not None:
        return DType.parse(name)
    known = code in TensorProto.DataType.values() and code != TensorProto.UNDEFINED
    error = UnsupportedModelError if known else InvalidModelError
    raise error(
        f"{what} has element type {dtype_name(code)}",
        where=where,
        expected=f"one of {', '.join(_NAMES.values())}",
        help="convert the tensor to one of these types before exporting" if known else None,
    )


def supported_dtypes() -> tuple[str, ...]:
    """Return the names of the dtypes that an ONNX tensor may have."""
    return tuple(_NAMES.values())


def read_external(tensor: TensorProto, nbytes: int, folder: Path | None, where: str) -> np.ndarray:
    """Read the ``nbytes`` bytes of ``tensor`` as a uint8 array.

    Raises ``InvalidModelError`` for a path outside the model's folder, a missing file, and an
    offset or length that does not match the file or the tensor's shape.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    label = f"the external data of initializer {tensor.name!r}"
    if folder is None:
        raise InvalidModelError(
            f"{label} cannot be found: the model was passed in memory",
            where=where,
            help="pass the path of the model file, or load it with onnx.load, which reads the data",
        )
    path = _safe_path(entries.get("location", ""), folder, label, where)
    offset = _number(entries, "offset", 0, label, where)
    length = _number(entries, "length", nbytes, label, where)
    if length != nbytes:
        raise InvalidModelError(
            f"{label} does not match its shape",
            where=where,
            expected=f"{nbytes} bytes for shape {tuple(tensor.dims)}",
            got=f"length = {length}",
        )
    size = path.stat().st_size
    if offset + length > size:
        raise InvalidModelError(
            f"{label} lies beyond the end of its file",
            where=where,
            expected=f"{offset + length} bytes or more in {path.name}",
            got=f"{size} bytes",
            help="the data file may be truncated; copy it again",
        )
    return np.fromfile(path, np.uint8, count=length, offset=offset)


def _safe_path(location: str, folder: Path, label: str, where: str) -> Path:
    root = folder.resolve()
    absolute = PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive
    path = root
    try:
        path = (root / location).resolve()  # resolves links, which could lead out of the folder
        inside = path.is_relative_to(root) and path != root
        exists = path.is_file()
    except (OSError, ValueError):
        inside, exists = False, False
    if absolute or not inside:
        raise InvalidModelError(
            f"{label} points outside the folder of the model",
            where=where,
            expected="a relative path to a file in the model's folder",
            got=repr(location),
            help="move the data file beside the model and save the model with its new location",
        )
    if not exists:
        raise InvalidModelError(
            f"{label} is missing",
            where=where,
            expected=f"the file {location!r} in the model's folder",
        )
    return path


def _number(entries: dict[str, str], key: str, default: int, label: str, where: str) -> int:
    text = entries.get(key)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()):
        raise InvalidModelError(
            f"{label} has a bad {key}", where=where, expected="a number >= 0", got=repr(text)
        )
    return int(text)


# Size limit of a tensor in memory, equal to protobuf's limit for a stored one.
MAX_TENSOR_BYTES = 2**31

_TYPED_FIELD = {
    "float32": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
}
_STORED_AS_BITS = {"float16": np.dtype(np.uint16), "bfloat16": np.dtype(np.uint16)}


def tensor_to_numpy(tensor: TensorProto, folder: Path | None, where: str,
                    raw: memoryview | None = None) -> np.ndarray:
    """Return the value of ``tensor`` as an array, which may be read-only.

    ``raw`` are its data if they are not in ``tensor`` (``wire.split_model``).

    Raises ``InvalidModelError`` if the data does not match the shape, and
    ``UnsupportedModelError`` for unsupported element types.
    """
    label = f"initializer {tensor.name!r}" if tensor.name else "a constant tensor"
    dtype = dtype_of(tensor.data_type, label, where)
    shape = checked_shape(tensor.dims, dtype, label, where)
    if tensor.HasField("segment"):
        raise UnsupportedModelError(f"{label} is stored in segments", where=where)
    count = math.prod(shape)
    if raw is not None:
        _check_length(label, shape, "bytes", _stored_bytes(count, dtype), len(raw), where)
        flat = _from_bytes(np.frombuffer(raw, np.uint8), dtype, count)
    elif tensor.data_location == TensorProto.EXTERNAL:
        stored = read_external(tensor, _stored_bytes(count, dtype), folder, where)
        flat = _from_bytes(stored, dtype, count)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data  # every access copies the data
        _check_length(label, shape, "bytes", _stored_bytes(count, dtype), len(data), where)
        flat = _from_bytes(np.frombuffer(data, np.uint8), dtype, count)
    else:
        flat = _from_typed_field(tensor, dtype, shape, label, where)
    return flat.reshape(shape)


def checked_shape(dims: object, dtype: DType, label: str, where: object) -> tuple[int, ...]:
    """Return ``dims`` as a tuple; raises ``InvalidModelError`` if negative or too large."""
    shape = tuple(int(d) for d in dims)  # type: ignore[attr-defined]
    if any(d < 0 for d in shape):
        raise InvalidModelError(
            f"{label} has a negative dimension", where=where, expected="sizes >= 0", got=str(shape)
        )
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes > MAX_TENSOR_BYTES or any(d > MAX_TENSOR_BYTES for d in shape) or len(shape) > 32:
        raise InvalidModelError(
            f"{label} is too large",
            where=where,
            expected=f"at most {MAX_TENSOR_BYTES} bytes and 32 dimensions",
            got=f"shape {shape} of {dtype}, {nbytes} bytes",
        )
    return shape


def _check_length(
    label: str, shape: tuple[int, ...], unit: str, expected: int, got: int, where: str
) -> None:
    if expected != got:
        raise InvalidModelError(
            f"the data of {label} does not match its shape",
            where=where,
            expected=f"{expected} {unit} for shape {shape}",
            got=f"{got} {unit}",
            help="the file may be truncated or edited; export the model again",
        )


def _is_packed(dtype: DType) -> bool:
    return dtype.bits < 8 and not dtype.is_bool


def _stored_bytes(count: int, dtype: DType) -> int:
    """Return the stored size in bytes; elements of less than 8 bits are packed."""
    return -(-count * dtype.bits // 8) if _is_packed(dtype) else count * dtype.itemsize


def _from_bytes(stored: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    if dtype.is_bool:
        return stored != 0
    if _is_packed(dtype):
        return _unpacked(stored, dtype, count)
    little = dtype.numpy if dtype.itemsize == 1 else dtype.numpy.newbyteorder("<")
    return stored.view(little).astype(dtype.numpy, copy=False)


def _unpacked(stored: np.ndarray, dtype: DType, count: int) -> np.ndarray:
    """Unpack elements of less than 8 bits; the first one is in the lowest bits of a byte."""
    shifts = np.arange(0, 8, dtype.bits, dtype=np.uint8)
    codes = stored[:, None] >> shifts & (1 << dtype.bits) - 1
    return codes.reshape(-1)[:count].astype(np.uint8).view(dtype.numpy)


def _from_typed_field(
    tensor: TensorProto, dtype: DType, shape: tuple[int, ...], label: str, where: str
) -> np.ndarray:
    values = getattr(tensor, _TYPED_FIELD.get(dtype.name, "int32_data"))
    count = math.prod(shape)
    length = _stored_bytes(count, dtype) if _is_packed(dtype) else count
    _check_length(label, shape, "values", length, len(values), where)
    if dtype.name in ("float32", "float64"):
        return np.array(values, dtype.numpy)
    wide = np.array(values, np.uint64 if dtype.name in ("uint32", "uint64") else np.int64)
    if dtype.is_bool:
        return wide != 0
    carrier = _carrier(dtype)
    limits = np.iinfo(carrier)
    if wide.size and (int(wide.min()) < limits.min or int(wide.max()) > limits.max):
        raise InvalidModelError(
            f"the data of {label} does not fit its element type",
            where=where,
            expected=f"{limits.min} to {limits.max} for {dtype}",
            got=f"{int(wide.min())} to {int(wide.max())}",
        )
    narrow = wide.astype(carrier)
    return _unpacked(narrow, dtype, count) if _is_packed(dtype) else narrow.view(dtype.numpy)


def _carrier(dtype: DType) -> np.dtype:
    """Return the integer dtype that holds the elements of ``dtype`` or their bits."""
    if dtype.is_small_float or _is_packed(dtype):
        return np.dtype(np.uint8)
    return _STORED_AS_BITS.get(dtype.name, dtype.numpy)
