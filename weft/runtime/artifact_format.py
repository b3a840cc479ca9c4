"""The archive of artifacts, an uncompressed zip file, and the form of entries of the disk cache.

Members lie at multiples of 64 bytes in the file, so that they can be mapped into memory.
``weft.runtime.artifact_contents`` says which members an artifact has.

An entry of the cache (``payload_parts``) has the constants first, so that they can be written
before the code is there, then the objects, then a head.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError

if TYPE_CHECKING:
    import zipfile  # entries of the cache need none of it

# The bytes of a member, in the order in which they are written.
Chunks: TypeAlias = "Sequence[bytes | memoryview]"
MEMBER_ALIGNMENT = 64
_LOCAL_HEADER = 30
_PADDING_ID = 0xD935  # the extra field that archives use for alignment
_EPOCH = (1980, 1, 1, 0, 0, 0)  # equal modules give equal archives


def digest(data: Any) -> str:
    """The checksum of a member."""
    return hashlib.sha256(data).hexdigest()


def digest_of(chunks: Chunks) -> str:
    """The checksum of a member that is given in chunks."""
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
    return found.hexdigest()


def write_archive(file: IO[bytes], members: Mapping[str, Chunks]) -> None:
    """Write the members in order, each at a multiple of 64 bytes."""
    import zipfile

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, chunks in members.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.file_size = sum(memoryview(chunk).nbytes for chunk in chunks)
            info.create_system, info.external_attr = 3, 0o644 << 16
            info.extra = _padding(file.tell(), info)
            large = info.file_size >= zipfile.ZIP64_LIMIT // 2
            with archive.open(info, "w", force_zip64=large) as member:
                for chunk in chunks:
                    member.write(chunk)


def _padding(offset: int, info: zipfile.ZipInfo) -> bytes:
    """An extra field that moves the member's first byte to a multiple of the alignment."""
    from zipfile import ZIP64_LIMIT

    large = info.file_size >= ZIP64_LIMIT // 2
    info.CRC = info.compress_size = 0  # not known yet; they do not change the length of the header
    header = len(info.FileHeader(zip64=large)) + 4
    missing = -(offset + header) % MEMBER_ALIGNMENT
    return struct.pack("<HH", _PADDING_ID, missing) + bytes(missing)


def locate_members(file: IO[bytes], size: int) -> dict[str, tuple[int, int]]:
    """Offset and size of each member; ``ArtifactError`` for a file that is not an archive."""
    import zipfile

    try:
        with zipfile.ZipFile(file) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            for name, info in infos.items():
                if info.compress_type != zipfile.ZIP_STORED:
                    raise ArtifactError("a damaged artifact", where=name, got="a compressed member")
            return {name: _extent(file, info, size) for name, info in infos.items()}
    except ArtifactError:
        raise
    except Exception as error:  # noqa: BLE001 - damaged archives raise a dozen kinds of errors
        raise ArtifactError("not a weft artifact, or a damaged one",
                            got=f"{type(error).__name__}: {error}") from None


def _extent(file: IO[bytes], info: zipfile.ZipInfo, size: int) -> tuple[int, int]:
    file.seek(info.header_offset)
    header = file.read(_LOCAL_HEADER)
    name_length, extra_length = struct.unpack_from("<HH", header, 26)
    start = info.header_offset + _LOCAL_HEADER + name_length + extra_length
    if start + info.file_size > size:
        raise ArtifactError("a damaged artifact", where=info.filename, got="it ends too early")
    return start, info.file_size


@dataclass(frozen=True, slots=True)
class CodePayload:
    """Views of a payload, which starts with the constants."""

    manifest: Manifest
    constants: np.ndarray
    objects: tuple[memoryview, ...]


def payload_parts(manifest: Manifest, constants: np.ndarray, objects: Sequence[bytes]
                  ) -> list[bytes | memoryview]:
    """The payload that ``read_payload`` reads, in parts; the first one is ``constants``."""
    head = json.dumps({
        "manifest": manifest.to_json(indent=None),
        "constants": constants.nbytes,
        "objects": [len(code) for code in objects],
    }).encode()
    return [constants.data, *objects, head, len(head).to_bytes(8, "little")]


def read_payload(payload: memoryview) -> CodePayload:
    """Read back, without a copy."""
    end = len(payload) - 8
    start = end - int.from_bytes(payload[end:], "little")
    head = json.loads(bytes(payload[start:end]))
    at = head["constants"]
    constants = np.frombuffer(payload[:at], np.uint8)
    objects = []
    for size in head["objects"]:
        objects.append(payload[at : at + size])
        at += size
    return CodePayload(Manifest.from_json(head["manifest"]), constants, tuple(objects))
