"""Artifacts for programs without Python: an object or libraries, a header, a build with CMake."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.codegen import backend_of
from weft.export.archive import static_library
from weft.export.c_main import cmake_text, main_text
from weft.export.c_source import header_text
from weft.runtime.manifest import Manifest
from weft.support.errors import ArtifactError
from weft.target import Target

# What follows the name of a shared library, by a word of the triple.
_SHARED = {"wasm": "wasm", "windows": "dll", "darwin": "dylib", "macos": "dylib"}


def export_c(path: str | os.PathLike[str], manifest: Manifest, objects: Sequence[bytes],
             constants: np.ndarray, target: Target, *, as_library: bool = False) -> None:
    """Write the program into the folder ``path``, which names the model.

    It holds ``NAME.o``, or with ``as_library`` ``libNAME.a`` and a shared library, and
    ``NAME.h``, ``main.c`` and ``CMakeLists.txt``. ``objects`` are main and kernels, without the
    runtime support: threads need state, and the object is stateless. Symbolic sizes are parameters
    of the functions, and so are the arrays of state, which the caller keeps. Equal models give
    equal bytes. ``LinkerError`` if no linker is found, ``ArtifactError`` for programs of the
    virtual machine and for folders that cannot be written, ``TargetError`` for targets without C
    artifacts.
    """
    if manifest.counts:
        raise ArtifactError(
            "data determines sizes of the program, which a C artifact cannot return",
            got=", ".join(count.name for count in manifest.counts),
            help='export it for weft.load, with format="weft"',
        )
    if manifest.vm is not None:
        raise ArtifactError(
            "the program needs the virtual machine, which is not part of a C artifact",
            got=manifest.signature(),
            help="programs with closures, data types, recursion or dynamic shapes need weft.load",
        )
    folder = Path(path)
    name = _identifier(folder.name)
    weights = np.ascontiguousarray(constants).view(np.uint8).data
    backend = backend_of(target)
    code = backend.c_object(name, manifest, objects, weights, target)
    if as_library:
        shared = f"lib{name}.{_suffix(manifest.target.triple)}"
        files = {f"lib{name}.a": static_library(code), shared: backend.link([code], target)}
    else:
        files = {f"{name}.o": code}
    files |= {"CMakeLists.txt": cmake_text(name, list(files)).encode(),
              f"{name}.h": header_text(name, manifest, list(files)).encode(),
              "main.c": main_text(name, manifest, next(iter(files))).encode()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    except OSError as error:
        raise ArtifactError("the artifact cannot be written", where=path,
                            got=error.strerror or error) from None


def _suffix(triple: str) -> str:
    return next((suffix for word, suffix in _SHARED.items() if word in triple), "so")


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"net_{made}" if not made or made[0].isdigit() else made
