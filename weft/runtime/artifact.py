"""Loading artifacts: everything is verified before anything is mapped as code.

An artifact holds machine code. Checksums detect damage, not malice: load files only from sources
whose programs you would run.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

from weft.runtime.arena import AlignedBlock
from weft.runtime.artifact_format import (
    CONSTANTS,
    LIBRARY,
    MANIFEST,
    digest,
    locate_members,
    manifest_digest,
)
from weft.runtime.devices.cpu.threads import checked_count
from weft.runtime.executable import Executable, open_executable
from weft.runtime.launchers import Code, check_machine, launcher_of
from weft.runtime.library import LOADERS
from weft.runtime.manifest import Manifest, TargetSpec
from weft.support.config import report_unknown_variables
from weft.support.errors import ArtifactError
from weft.support.plugins import load_plugins


def load(path: str | os.PathLike[str], *, map_constants: bool = True,
         threads: int | None = None) -> Executable:
    """The module that an artifact holds; no compiler is imported.

    Weights are mapped from the file, so that processes share them: replace the file as a whole
    (as ``export`` does), do not write into it while a module is in use. With
    ``map_constants=False`` they are copied into large pages of this process, which saves a few
    percent of a call that reads many MB of them. ``threads`` is the number of threads of the
    module's calls; it replaces the number that the artifact was exported with.

    Raises ``ArtifactError`` for a file that is missing, damaged, not an artifact, of another
    format version, or for another machine or kind of target, and ``OptionError`` for ``threads``
    other than 1 to 4096.
    """
    checked_count(threads)
    report_unknown_variables()
    try:
        file = Path(path)
    except TypeError:
        raise ArtifactError("not the path of an artifact", got=repr(path)) from None
    try:
        return _load(file, map_constants=map_constants, threads=threads)
    except ArtifactError as error:
        where = error.where
        raise ArtifactError(error.what, where=f"{path}: {where}" if where else path,
                            expected=error.expected, got=error.got, notes=error.notes,
                            help=error.help) from None


def _load(path: Path, *, map_constants: bool, threads: int | None
          ) -> Executable:
    data = _map_file(path)
    with path.open("rb") as file:
        extents = locate_members(file, len(data))
    members = {name: memoryview(data)[start : start + size]
               for name, (start, size) in extents.items()}
    text = bytes(members[MANIFEST])
    manifest = Manifest.from_json(text)
    check_target(manifest.target)
    launcher_of(manifest)  # raises for one that is not registered
    # With sizes edited by hand the code could write past the end of arrays.
    found = {MANIFEST: manifest_digest(text), LIBRARY: digest(members[LIBRARY]),
             CONSTANTS: digest(members[CONSTANTS])}
    for name, checksum in found.items():
        if manifest.checksums.get(name) != checksum:
            raise ArtifactError("a damaged artifact", where=name, got="another checksum")
    if len(members[CONSTANTS]) != manifest.constants_bytes:
        raise ArtifactError("a damaged artifact", where=CONSTANTS, got=len(members[CONSTANTS]),
                            expected=f"{manifest.constants_bytes} bytes")
    if threads is not None:
        manifest = replace(manifest, threads=threads)
    load_library = LOADERS.get(manifest.target.kind)
    constants = _constants(members[CONSTANTS], copy=not map_constants)
    return open_executable(Code(manifest, lambda: load_library(members[LIBRARY]), constants))


def check_target(target: TargetSpec) -> None:
    """Raise ``ArtifactError`` if this process cannot load the code or the machine cannot run it."""
    if target.kind not in LOADERS:
        load_plugins()
    if target.kind not in LOADERS:
        raise ArtifactError(f"no loader is registered for targets of kind {target.kind!r}",
                            expected=", ".join(LOADERS), got=target.cpu,
                            help="import the package that defines the target")
    check_machine(target)


def _map_file(path: Path) -> mmap.mmap:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ArtifactError("the file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise ArtifactError("the artifact cannot be read",
                            got=getattr(error, "strerror", None) or error) from None


def _constants(member: memoryview, *, copy: bool) -> np.ndarray | AlignedBlock:
    mapped = np.frombuffer(member, np.uint8) if len(member) else np.empty(0, np.uint8)
    if not copy:
        return mapped  # the module copies it if it is not aligned
    block = AlignedBlock(mapped.size)
    block.array[:] = mapped
    return block
