"""The form of a compiled model in the disk cache: a head, the constants, the objects."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from weft.runtime.arena import ALIGNMENT
from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class CodePayload:
    """Views of a payload; ``constants`` start at a multiple of 64 bytes in it."""

    manifest: Manifest
    constants: np.ndarray
    objects: tuple[memoryview, ...]


def payload_parts(manifest: Manifest, constants: np.ndarray, objects: Sequence[bytes]
                  ) -> list[bytes | memoryview]:
    """The payload that ``read_payload`` reads, in parts."""
    head = json.dumps({
        "manifest": manifest.to_json(),
        "constants": constants.nbytes,
        "objects": [len(code) for code in objects],
    }).encode()
    # JSON ignores trailing blanks, so they can align the constants that follow.
    padded = head.ljust(-(-(8 + len(head)) // ALIGNMENT) * ALIGNMENT - 8)
    return [len(padded).to_bytes(8, "little"), padded, constants.data, *objects]


def read_payload(payload: memoryview) -> CodePayload:
    """Read back, without a copy."""
    start = 8 + int.from_bytes(payload[:8], "little")
    head = json.loads(bytes(payload[8:start]))
    at = start + head["constants"]
    constants = np.frombuffer(payload[start:at], np.uint8)
    objects = []
    for size in head["objects"]:
        objects.append(payload[at : at + size])
        at += size
    return CodePayload(Manifest.from_json(head["manifest"]), constants, tuple(objects))
