"""Keys of the disk cache: equal if and only if the generated code would be equal.

A key covers the program, the target and the compiler: the sources of weft and the versions of its
libraries are part of it, so a change of the compiler invalidates the cache.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import weft
from weft.support.versions import library_version


@functools.lru_cache(maxsize=1)
def compiler_digest() -> str:
    """A digest of weft's sources and of the versions of libraries that affect its output."""
    digest = hashlib.sha256()
    root = Path(weft.__file__).parent
    # The machines that weft ships decide about code, as its sources do.
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.toml")]):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    for library in ("llvmlite", "numba", "numpy", "ml_dtypes", "onnx"):
        digest.update(f"{library} {library_version(library)}".encode())
    return digest.hexdigest()


def key_of(kind: str, *parts: str | bytes | memoryview) -> str:
    """The cache key of ``parts``, each preceded by its length."""
    digest = hashlib.sha256(f"{kind}\0{compiler_digest()}\0".encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
