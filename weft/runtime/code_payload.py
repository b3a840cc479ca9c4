"""The form of a compiled model in the disk cache: the constants, the objects, a head.

The constants come first, so that they can be written before the code is there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass


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
        "manifest": manifest.to_json(),
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
