"""The contents of an artifact: entry points, their native programs and portable forms, by members.

``artifact.json`` is the head: it lists the entry points and holds the SHA-256 of every member. The
weights of all native programs are in ``constants.bin``. A native program is a folder with
``manifest.json`` and ``lib.so``, the code as its back end linked it. A portable form is the typed
program as JSON (``weft.ir.json``); the weights that no native program has are in
``portable/constants.bin``.

Files of version 3 hold one native program, without a head.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field
from typing import Any

from weft.runtime.artifact_format import digest
from weft.runtime.json_fields import as_text
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError

FORMAT = "weft artifact"
VERSION = 4
HEAD = "artifact.json"
CONSTANTS = "constants.bin"
PORTABLE_CONSTANTS = "portable/constants.bin"
MANIFEST, LIBRARY = "manifest.json", "lib.so"  # in the folder of a native program
# The entry point of a file that has one alone.
MAIN = "main"
# The first version that this one reads.
_OLDEST = 3


def member(folder: str, name: str) -> str:
    """The member ``name`` of a folder; in files of version 3 the folder is the whole file."""
    return f"{folder}/{name}" if folder else name


@dataclass(frozen=True, slots=True)
class PortableForm:
    """The member with the typed program, the options to compile it, and first values of its state.

    ``initial`` maps names of states to their member, offset, dtype and shape.
    """

    program: str
    options: Mapping[str, Any] = field(default_factory=dict)
    initial: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point: the folders of its native programs, and its portable form.

    ``signature`` is the member with the manifest of a model that has no program for all sizes; its
    native programs are for one set of input shapes each. The others differ in the CPU that they
    need.
    """

    programs: tuple[str, ...] = ()
    portable: PortableForm | None = None
    signature: str = ""


@dataclass(frozen=True, slots=True)
class Contents:
    """``checksums`` are those of the members by name.

    ``kind`` names what the entry points make up together (a decoder), and ``facts`` describes it.
    """

    entries: Mapping[str, EntryPoint]
    weft_version: str
    kind: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    checksums: Mapping[str, str] = field(default_factory=dict)
    version: int = VERSION

    def to_json(self) -> str:
        """The head, with a checksum of its own. Equal contents give equal text."""
        plain = {"format": FORMAT, **asdict(self)}
        plain["checksums"] = {**self.checksums, HEAD: _head_digest(plain)}
        return json.dumps(plain, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: bytes) -> Contents:
        """Read and check a head; ``ArtifactError`` for anything else."""
        try:
            plain = json.loads(text)
            if plain["format"] != FORMAT:
                raise ValueError(plain["format"])
            version = plain["version"]
            if version == VERSION:
                return _contents(plain)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ArtifactError("a damaged artifact", where=HEAD,
                                got=f"{type(error).__name__}: {error}") from None
        raise ArtifactError(
            "the artifact has another format", expected=f"versions {_OLDEST} to {VERSION}",
            got=version, help="export it again with this version of weft, or install the version "
                              "that wrote it")


def contents_of_version_3(manifest: Mapping[str, Any]) -> Contents:
    """The contents of a file without a head, whose manifest holds the checksums."""
    checksums = manifest.get("checksums", {})
    return Contents({MAIN: EntryPoint(("",))}, str(manifest.get("weft_version", "")),
                    checksums=checksums, version=_OLDEST)


def manifest_digest(plain: Mapping[str, Any]) -> str:
    """The checksum that a manifest of version 3 holds of itself."""
    own = dict(plain)
    own["checksums"] = {k: v for k, v in plain["checksums"].items() if k != MANIFEST}
    return digest(json.dumps(own, sort_keys=True).encode())


def _head_digest(plain: Mapping[str, Any]) -> str:
    own = dict(plain)
    own["checksums"] = {k: v for k, v in plain["checksums"].items() if k != HEAD}
    return digest(json.dumps(own, sort_keys=True).encode())


def _contents(plain: Mapping[str, Any]) -> Contents:
    if plain["checksums"].get(HEAD) != _head_digest(plain):
        raise ArtifactError("a damaged artifact", where=HEAD, got="another checksum")
    entries = {as_text(name): _entry(value) for name, value in plain["entries"].items()}
    if not entries:
        raise ValueError("no entry points")
    checksums = {as_text(k): as_text(v) for k, v in plain["checksums"].items()}
    return Contents(entries, as_text(plain["weft_version"]), as_text(plain["kind"]),
                    dict(plain["facts"]), checksums)


def _entry(plain: Mapping[str, Any]) -> EntryPoint:
    portable = plain["portable"]
    form = None if portable is None else PortableForm(
        as_text(portable["program"]), dict(portable["options"]), dict(portable["initial"]))
    return EntryPoint(tuple(map(as_text, plain["programs"])), form, as_text(plain["signature"]))
