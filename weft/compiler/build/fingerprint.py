"""Keys of the disk cache: equal exactly where the machine code would be.

A key covers what is compiled, for what, and by what: the sources of weft and the version of
LLVM's binding are part of it, so a developer never runs yesterday's code.
"""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

import weft
from weft.support.versions import library_version


@functools.lru_cache(maxsize=1)
def compiler_digest() -> str:
    """A digest of weft's sources and of the libraries that shape its output."""
    digest = hashlib.sha256()
    root = Path(weft.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    for library in ("llvmlite", "numba", "numpy", "ml_dtypes", "onnx"):
        digest.update(f"{library} {library_version(library)}".encode())
    return digest.hexdigest()


def key_of(kind: str, *parts: str | bytes | memoryview) -> str:
    """The cache key of ``parts``, each separated from the next."""
    digest = hashlib.sha256(f"{kind}\0{compiler_digest()}\0".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def file_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a file."""
    return Path(path).read_bytes()
