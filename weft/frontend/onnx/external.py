"""Reading of external tensor data; paths from the model are checked before use."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath

import numpy as np
from onnx import TensorProto

from weft.support.errors import InvalidModelError


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
