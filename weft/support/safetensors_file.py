"""Tensors of safetensors files as arrays over a memory map: nothing is read before it is used.

https://github.com/huggingface/safetensors describes the format. The library reads bfloat16 for
torch alone; the arrays here keep their dtype.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from weft.support.errors import InvalidModelError

_DTYPES: dict[str, np.dtype] = {name: np.dtype(dtype) for name, dtype in (
    ("BOOL", np.bool_), ("U8", np.uint8), ("I8", np.int8), ("I16", np.int16), ("U16", np.uint16),
    ("I32", np.int32), ("U32", np.uint32), ("I64", np.int64), ("U64", np.uint64),
    ("F16", np.float16), ("BF16", ml_dtypes.bfloat16), ("F32", np.float32), ("F64", np.float64),
    ("F8_E4M3", ml_dtypes.float8_e4m3fn), ("F8_E5M2", ml_dtypes.float8_e5m2))}


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file, mapped for reading."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise InvalidModelError("a file cannot be read", where=path, got=error) from None


def map_tensors(path: Path) -> dict[str, Callable[[], np.ndarray]]:
    """The tensors of a file by name; calling one gives its array, which may not be written to.

    Raises ``InvalidModelError`` for a file whose header is damaged or names bytes beyond its end.
    """
    data = map_file(path)
    size = int.from_bytes(data[:8], "little")
    start = 8 + size
    if len(data) < 8 or start > len(data):
        raise _damaged(path, "a header that ends inside the file", f"{size} bytes")
    try:
        header = json.loads(data[8:start])
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "a header in JSON", error) from None
    if not isinstance(header, dict):
        raise _damaged(path, "an object in JSON", type(header).__name__)
    header.pop("__metadata__", None)
    return {name: _tensor(path, data, start, name, entry) for name, entry in header.items()}


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Write a file whose tensors are in the order of their names; it is there whole or not at all.

    Raises ``InvalidModelError`` for a dtype that the format lacks, and for a path that cannot be
    written.
    """
    codes = {dtype: code for code, dtype in _DTYPES.items()}
    header, at = {}, 0
    ordered = sorted(tensors.items())
    for name, array in ordered:
        if array.dtype not in codes:
            raise InvalidModelError("a dtype that safetensors files lack", where=name,
                                    expected=", ".join(_DTYPES), got=array.dtype)
        header[name] = {"dtype": codes[array.dtype], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial_path = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial_path.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, array in ordered:
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        partial_path.replace(path)
    except OSError as error:
        raise InvalidModelError("a file cannot be written", where=path, got=error) from None
    finally:
        partial_path.unlink(missing_ok=True)


def _tensor(path: Path, data: mmap.mmap, start: int, name: str, entry: Any
            ) -> Callable[[], np.ndarray]:
    fields = entry if isinstance(entry, dict) else {}
    code, shape, span = (fields.get("dtype"), _sizes(fields.get("shape")),
                         _sizes(fields.get("data_offsets")))
    if not isinstance(code, str) or code not in _DTYPES:
        raise InvalidModelError("a tensor of an unknown dtype", where=f"{path}, {name}",
                                expected=", ".join(_DTYPES), got=code)
    if shape is None or span is None or len(span) != 2:
        raise _damaged(path, "a shape and offsets", entry)
    dtype, (begin, end) = _DTYPES[code], span
    if end > len(data) - start or end - begin != math.prod(shape) * dtype.itemsize:
        raise _damaged(path, f"{name}: {shape} of {code} inside the file",
                       f"bytes {begin} to {end}")
    return partial(_array, data, dtype, start + begin, shape)


def _sizes(value: Any) -> tuple[int, ...] | None:
    """The numbers of a list that are not negative; ``None`` for all else."""
    is_list = isinstance(value, list) and all(type(n) is int and n >= 0 for n in value)
    return tuple(value) if is_list else None


def _array(data: mmap.mmap, dtype: np.dtype, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(data, dtype, math.prod(shape), offset).reshape(shape)


def _damaged(path: Path, expected: str, got: object) -> InvalidModelError:
    return InvalidModelError("a safetensors file is damaged or cut short", where=path,
                             expected=expected, got=str(got)[:120])
