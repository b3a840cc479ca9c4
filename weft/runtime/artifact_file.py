"""``ArtifactFile``: the members of an artifact, each checked before it is used."""

from __future__ import annotations

import json
import mmap
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.runtime.arena import AlignedBlock
from weft.runtime.artifact_contents import (
    CONSTANTS,
    HEAD,
    LIBRARY,
    MANIFEST,
    Contents,
    contents_of_version_3,
    manifest_digest,
    member,
)
from weft.runtime.artifact_format import digest, locate_members
from weft.runtime.manifest import Manifest
from weft.support.errors import ArtifactError


class ArtifactFile:
    """A mapped file. Raises ``ArtifactError`` for one that is missing, damaged or no artifact."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _map_file(path)
        with path.open("rb") as file:
            self.extents = locate_members(file, len(self._data))
        self._checked: set[str] = set()
        self.contents = self._contents()

    def _contents(self) -> Contents:
        if HEAD in self.extents:
            return Contents.from_json(bytes(self._raw(HEAD)))
        if MANIFEST not in self.extents:
            raise ArtifactError("not a weft artifact", expected=f"the member {HEAD}",
                                got=f"a zip archive of {sorted(self.extents)[:5]}")
        text = bytes(self._raw(MANIFEST))
        Manifest.from_json(text)  # raises for anything else
        plain = json.loads(text)
        found = contents_of_version_3(plain)
        if found.checksums.get(MANIFEST) != manifest_digest(plain):
            raise ArtifactError("a damaged artifact", where=MANIFEST, got="another checksum")
        self._checked.add(MANIFEST)
        return found

    def _raw(self, name: str) -> memoryview:
        if name not in self.extents:
            raise ArtifactError("a damaged artifact", where=name, got="the member is missing")
        start, size = self.extents[name]
        return memoryview(self._data)[start:start + size]

    def unchecked(self, name: str) -> memoryview:
        """A member without a checksum of its own: the head, the signatures."""
        return self._raw(name)

    def read(self, name: str) -> memoryview:
        """A member; ``ArtifactError`` if its checksum, verified at the first use, differs."""
        data = self._raw(name)
        if name not in self._checked:
            if self.contents.checksums.get(name) != digest(data):
                raise ArtifactError("a damaged artifact", where=name, got="another checksum")
            self._checked.add(name)
        return data

    def manifest(self, folder: str) -> Manifest:
        """The description of a native program."""
        return self.manifest_at(member(folder, MANIFEST))

    def manifest_at(self, name: str) -> Manifest:
        """The manifest that is the member ``name``."""
        found = Manifest.from_json(bytes(self.read(name)))
        available = self.extents.get(CONSTANTS, (0, 0))[1]
        if found.constants_bytes > available:
            raise ArtifactError("a damaged artifact", where=CONSTANTS, got=available,
                                expected=f"{found.constants_bytes} bytes")
        return replace(found, checksums={})

    def code(self, folder: str) -> memoryview:
        """The code of a native program."""
        return self.read(member(folder, LIBRARY))

    def constants(self, *, copy: bool) -> np.ndarray | AlignedBlock:
        """The weights of the native programs, mapped, or in large pages of this process."""
        data = self.read(CONSTANTS)
        mapped = np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)
        if not copy:
            return mapped  # the module copies it if it is not aligned
        block = AlignedBlock(mapped.size)
        block.array[:] = mapped
        return block


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ArtifactError("the file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ArtifactError("the artifact cannot be read",
                            got=getattr(error, "strerror", None) or error) from None
