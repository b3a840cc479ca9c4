"""Writing artifacts: one file that runs without a compiler."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.export.files import replacing
from weft.runtime.artifact_format import (
    CONSTANTS,
    LIBRARY,
    MANIFEST,
    digest,
    manifest_digest,
    write_archive,
)
from weft.runtime.manifest import Manifest
from weft.support.errors import ArtifactError


def export_artifact(
    path: str | os.PathLike[str], manifest: Manifest, code: bytes,
    constants: bytes | memoryview | np.ndarray,
) -> None:
    """Write a module into one file; ``code`` is what its back end linked.

    The file is replaced atomically; equal modules give equal bytes. Raises ``ArtifactError`` if
    the file cannot be written.
    """
    weights = _as_bytes(constants)
    checksums = {LIBRARY: digest(code), CONSTANTS: digest(weights)}
    described = replace(manifest, checksums=dict(checksums), constants_bytes=len(weights))
    checksums[MANIFEST] = manifest_digest(described.to_json())
    text = replace(described, checksums=checksums).to_json().encode()
    members = {MANIFEST: text, LIBRARY: code, CONSTANTS: weights}
    try:
        with replacing(Path(path)) as file:
            write_archive(file, members)
    except OSError as error:
        raise ArtifactError("the artifact cannot be written", where=path,
                            got=error.strerror or error) from None


def _as_bytes(data: bytes | memoryview | np.ndarray) -> memoryview:
    if isinstance(data, np.ndarray):
        data = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")
