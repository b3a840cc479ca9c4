"""Writing artifacts: one file that runs without a compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import weft
from weft.export.files import replacing
from weft.runtime.artifact_contents import (
    CONSTANTS,
    HEAD,
    LIBRARY,
    MAIN,
    MANIFEST,
    PORTABLE_CONSTANTS,
    Contents,
    EntryPoint,
    PortableForm,
    member,
)
from weft.runtime.artifact_format import Chunks, digest_of, write_archive
from weft.runtime.artifact_signatures import SIGNATURES, signatures_text
from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program for one CPU or GPU: its description, and the code that its back end linked.

    ``label`` tells it from the others of its entry point.
    """

    label: str
    manifest: Manifest
    code: bytes


@dataclass(frozen=True, slots=True)
class PortableText:
    """A typed program as JSON, with what ``PortableForm`` has beside it."""

    text: str
    options: Mapping[str, Any] = field(default_factory=dict)
    initial: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExportedEntry:
    """An entry point. ``signature`` is that of a model with a program for each set of shapes."""

    programs: Sequence[NativeProgram]
    portable: PortableText | None = None
    signature: Manifest | None = None


def write_artifact(path: str | os.PathLike[str], entries: Mapping[str, ExportedEntry],
                   constants: Chunks, portable_constants: Chunks = (), *, kind: str = "",
                   facts: Mapping[str, Any] | None = None,
                   check: Callable[[Path], None] | None = None,
                   sign: Callable[[str], Mapping[str, bytes]] | None = None) -> None:
    """Write entry points and their weights into one file.

    ``check`` is called with the complete file before it gets its name. ``sign`` gives signatures
    of the checksum of its head. The file is replaced
    atomically; equal modules give equal bytes. Raises ``ArtifactError`` if the file cannot be
    written, and what ``check`` raises.
    """
    members: dict[str, Chunks] = {HEAD: (), CONSTANTS: constants}
    points = {name: _entry_point(name, entry, members) for name, entry in entries.items()}
    if portable_constants:
        members[PORTABLE_CONSTANTS] = portable_constants
    checksums = {name: digest_of(chunks) for name, chunks in members.items() if name != HEAD}
    head = Contents(points, weft.__version__, kind, facts or {}, checksums)
    text = head.to_json()
    members[HEAD] = (text.encode(),)
    if sign is not None:
        own = Contents.from_json(text.encode()).checksums[HEAD]
        members[SIGNATURES] = (signatures_text(sign(own)),)
    try:
        with replacing(Path(path), check) as file:
            write_archive(file, members)
    except OSError as error:
        raise ArtifactError("the artifact cannot be written", where=path,
                            got=error.strerror or error) from None


def export_artifact(path: str | os.PathLike[str], manifest: Manifest, code: bytes,
                    constants: bytes | memoryview) -> None:
    """Write one native program and its weights into one file (``write_artifact``)."""
    data = memoryview(constants)
    view = data.cast("B") if data.nbytes else memoryview(b"")
    described = replace(manifest, constants_bytes=view.nbytes)
    entry = ExportedEntry([NativeProgram("code", described, code)])
    write_artifact(path, {MAIN: entry}, (view,))


def _entry_point(name: str, entry: ExportedEntry, members: dict[str, Chunks]) -> EntryPoint:
    folders = []
    for program in entry.programs:
        folder = f"native/{name}/{program.label}"
        if folder in folders:
            folder = f"{folder}-{len(folders)}"
        folders.append(folder)
        manifest = replace(program.manifest, checksums={})
        members[member(folder, MANIFEST)] = (manifest.to_json().encode(),)
        members[member(folder, LIBRARY)] = (program.code,)
    form, signature = None, ""
    if entry.portable is not None:
        form = PortableForm(f"portable/{name}.json", entry.portable.options,
                            entry.portable.initial)
        members[form.program] = (entry.portable.text.encode(),)
    if entry.signature is not None:
        signature = f"native/{name}/{MANIFEST}"
        members[signature] = (entry.signature.to_json().encode(),)
    return EntryPoint(tuple(folders), form, signature)
