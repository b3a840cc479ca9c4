"""Artifacts for programs without Python: an object, a header, and a ``main.c`` that uses both."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.codegen import backend_of
from weft.export.c_main import main_text
from weft.export.c_source import header_text
from weft.runtime.manifest import Manifest
from weft.support.errors import ArtifactError
from weft.target import Target


def export_c(path: str | os.PathLike[str], manifest: Manifest, objects: Sequence[bytes],
             constants: np.ndarray, target: Target) -> None:
    """Write ``NAME.o``, ``NAME.h`` and ``main.c`` into the folder ``path``, which names the model.

    ``objects`` are main and kernels, without the runtime support: threads need state, and the
    object is stateless. Symbolic sizes are parameters of the functions, and so are the arrays of
    state, which the caller keeps. Equal models give equal bytes. ``LinkerError`` if no linker is
    found, ``ArtifactError`` for programs of the virtual machine and for folders that cannot be
    written, ``TargetError`` for targets without C artifacts.
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
    code = backend_of(target).c_object(name, manifest, objects, weights, target)
    files = {f"{name}.o": code, f"{name}.h": header_text(name, manifest).encode(),
             "main.c": main_text(name, manifest).encode()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    except OSError as error:
        raise ArtifactError("the artifact cannot be written", where=path,
                            got=error.strerror or error) from None


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"net_{made}" if not made or made[0].isdigit() else made
