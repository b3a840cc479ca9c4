"""The code of a program for a GPU: kernel objects, code for the host, and the host launcher.

In an artifact it is a magic word, the length of a JSON head (8 bytes, little-endian), the head with
the lengths of the parts, and the parts.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from weft.runtime.devices.cuda.image import MAGIC as KERNEL_MAGIC
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError

MAGIC = b"weft-cuda-bundle-1\n"
# In front of the object with the host launcher, which is one of a program's objects.
LAUNCHER_MAGIC = b"weft-cuda-launcher\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """``host`` are objects with the kernels that run on the host, or ``shared`` is a shared object.

    ``launcher`` is the object with the host launcher; it may be empty.
    """

    kernels: tuple[bytes, ...]
    host: tuple[bytes, ...] = ()
    shared: bytes = b""
    launcher: bytes = b""

    @staticmethod
    def of(objects: Sequence[bytes]) -> Bundle:
        """The objects of a program that was just compiled."""
        kernels, host, launcher = [], [], b""
        for code in objects:
            if code.startswith(KERNEL_MAGIC):
                kernels.append(code)
            elif code.startswith(LAUNCHER_MAGIC):
                launcher = code[len(LAUNCHER_MAGIC):]
            else:
                host.append(code)
        return Bundle(tuple(kernels), tuple(host), launcher=launcher)

    def pack(self) -> bytes:
        """The bytes of an artifact; equal programs give equal bytes."""
        head = json.dumps({"kernels": list(map(len, self.kernels)),
                           "host": list(map(len, self.host)), "shared": len(self.shared),
                           "launcher": len(self.launcher)}, sort_keys=True).encode()
        return b"".join((MAGIC, len(head).to_bytes(8, "little"), head, *self.kernels, *self.host,
                         self.shared, self.launcher))

    @staticmethod
    def unpack(code: bytes | memoryview) -> Bundle:
        """The bundle that ``pack`` wrote; ``ArtifactError`` for other bytes."""
        data = bytes(code)
        start = len(MAGIC) + 8
        if not data.startswith(MAGIC):
            raise ArtifactError("not the code of a program for a GPU",
                                expected=MAGIC.decode().strip(), got=repr(data[:len(MAGIC)]))
        at = start + int.from_bytes(data[len(MAGIC):start], "little")
        try:
            head = json.loads(data[start:at])
            groups = [_lengths(head[name]) for name in ("kernels", "host")]
            groups += [_lengths([head[name]]) for name in ("shared", "launcher")]
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError("the code of a program for a GPU is damaged", got=error) from None
        wanted = at + sum(map(sum, groups))
        if wanted != len(data):
            raise ArtifactError("the code of a program for a GPU is damaged",
                                expected=f"{wanted} bytes", got=len(data))
        found: list[tuple[bytes, ...]] = []
        for lengths in groups:
            parts = []
            for length in lengths:
                parts.append(data[at:at + length])
                at += length
            found.append(tuple(parts))
        kernels, host, (shared,), (launcher,) = found
        return Bundle(kernels, host, shared, launcher)


def _lengths(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(n) is int and n >= 0 for n in value):
        raise TypeError(f"{value!r} are not lengths")
    return value
