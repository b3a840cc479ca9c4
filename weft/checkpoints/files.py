"""One checkpoint in one safetensors file.

https://github.com/huggingface/safetensors describes the format: the length of a header, the header
in JSON, the bytes of the tensors. The metadata of the header hold the version of weft's format, the
step, the structure of the state, and a SHA-256 digest of the tensors, so that damage anywhere is
found. Other programs read the tensors under the names of their places in the state.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft.checkpoints.tree import flatten, unflatten
from weft.support.dataclass import dataclass
from weft.support.errors import CheckpointError

FORMAT = 1
_KEY = "weft_checkpoint"
_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}
_NAMES = {code: name for name, code in _DTYPES.items()}


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds: the step, the state, and metadata of the user (JSON values)."""

    path: Path
    step: int
    state: dict[str, Any]
    metadata: dict[str, Any]


def write_checkpoint(path: str | PathLike[str], step: int, state: Mapping[str, Any],
                     metadata: Mapping[str, Any] | None = None) -> None:
    """Write a file that is complete or absent: under another name, synchronised, then renamed.

    An existing file of this name is replaced at the end. Raises ``CheckpointError`` if a value of
    the state cannot be saved, or if the file cannot be written.
    """
    path = Path(path)
    document, arrays = flatten(state)
    arrays = {name: _storable(name, array) for name, array in arrays.items()}
    header = {"format": FORMAT, "step": int(step), "state": document,
              "metadata": dict(metadata or {}), "sha256": _digest(arrays)}
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise CheckpointError("the metadata of a checkpoint are not JSON", where=path,
                              got=error) from None
    try:
        _write(path, arrays, {_KEY: text})
    except OSError as error:
        raise CheckpointError("a checkpoint cannot be written", where=path, got=error,
                              help="the file that was there before is unchanged") from None


def _write(path: Path, arrays: Mapping[str, np.ndarray], metadata: dict[str, str]) -> None:
    from safetensors.numpy import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        os.close(handle)
        save_file(dict(arrays), name, metadata)
        _synchronise(Path(name), os.O_RDWR)
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise
    with suppress(OSError):  # makes the renaming durable; not every file system can
        _synchronise(path.parent, os.O_RDONLY)


def _storable(name: str, array: np.ndarray) -> np.ndarray:
    """The array row-major and in native byte order."""
    if array.dtype.name not in _DTYPES:
        raise CheckpointError("a dtype that safetensors files cannot hold", where=name,
                              got=array.dtype, expected=", ".join(_DTYPES))
    return np.ascontiguousarray(array, array.dtype.newbyteorder("=")).reshape(array.shape)


def _synchronise(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype.name} {array.shape};".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def read_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Read and check a file. Arrays of the state are new, writable, and of the saved dtypes.

    Raises ``CheckpointError`` for a file that is missing, cut short, damaged, of a later format,
    or no checkpoint of weft.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError("a checkpoint cannot be read", where=path,
                              got=error.strerror) from None
    header, arrays = _parse(path, data)
    if header.get("format") != FORMAT:
        raise CheckpointError("a checkpoint of an unknown format", where=path, expected=FORMAT,
                              got=header.get("format"), help="a later weft may have written it")
    if _digest(arrays) != header.get("sha256"):
        raise CheckpointError("a checkpoint is damaged", where=path,
                              expected="the SHA-256 digest of its header", got="other tensors")
    state = unflatten(header["state"], arrays)
    return Checkpoint(path, header["step"], state, header["metadata"])


def _parse(path: Path, data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    from safetensors import SafetensorError, deserialize

    try:
        tensors = deserialize(data)
        size = int.from_bytes(data[:8], "little")
        text = json.loads(data[8 : 8 + size]).get("__metadata__", {}).get(_KEY)
        header = None if text is None else json.loads(text)
        arrays = {name: np.frombuffer(bytearray(tensor["data"]), _dtype(tensor["dtype"]))
                  .reshape(tensor["shape"]) for name, tensor in tensors}
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError("a checkpoint is damaged or cut short",
                              where=f"{path}, {len(data)} bytes", got=error) from None
    if header is None:
        raise CheckpointError("a safetensors file that is no checkpoint of weft", where=path,
                              expected=f"metadata {_KEY}")
    return header, arrays


def _dtype(code: str) -> np.dtype:
    import ml_dtypes

    name = _NAMES[code]
    return np.dtype(getattr(ml_dtypes, name, name))
