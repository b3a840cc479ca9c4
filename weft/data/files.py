"""Whole files, plain or compressed by gzip, and errors that name the offset of the damage."""

from __future__ import annotations

import gzip
import zlib
from os import PathLike
from pathlib import Path

from weft.support.errors import DataError


def find_file(folder: str | PathLike[str], *names: str) -> Path:
    """The first of ``names`` that exists in the folder; ``DataError`` lists them otherwise."""
    for name in names:
        path = Path(folder) / name
        if path.is_file():
            return path
    raise DataError("a data file is missing", where=folder, expected=" or ".join(names),
                    help="weft reads files and downloads none")


def read_bytes(path: str | PathLike[str]) -> bytes:
    """The contents of a file, decompressed if it starts like one of gzip (RFC 1952).

    Raises ``DataError`` if it cannot be read, or if the compressed data is cut short or damaged.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError("a data file cannot be read", where=path, got=error.strerror) from None
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError("a compressed data file is damaged", where=f"{path}, {len(data)} bytes",
                        expected="a whole gzip file", got=error) from None


def expect_size(path: str | PathLike[str], data: bytes, size: int, what: str) -> None:
    """Raise ``DataError`` unless ``data`` has exactly ``size`` bytes."""
    if len(data) != size:
        offset = min(len(data), size)
        problem = "ends too early" if len(data) < size else "has bytes after its end"
        raise DataError(f"a data file {problem}", where=f"{path}, offset {offset}",
                        expected=f"{size} bytes: {what}", got=f"{len(data)} bytes")
