"""The code of a program for a GPU in an artifact: kernel objects, and code for the host.

A magic word, the length of a JSON head (8 bytes, little-endian), the head with the lengths of the
kernel objects, the objects, and a shared object with the kernels that run on the host (it may be
empty).
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from weft.runtime.devices.cuda.image import MAGIC as KERNEL_MAGIC
from weft.support.errors import ArtifactError

MAGIC = b"weft-cuda-bundle-1\n"


def is_kernel_object(code: bytes) -> bool:
    """Whether object code is a kernel for a GPU; other objects are code for the host."""
    return bytes(code[:len(KERNEL_MAGIC)]) == KERNEL_MAGIC


def pack(kernels: Sequence[bytes], host: bytes = b"") -> bytes:
    """The bytes of a bundle; equal programs give equal bytes."""
    head = json.dumps({"kernels": [len(code) for code in kernels], "host": len(host)},
                      sort_keys=True).encode()
    return b"".join((MAGIC, len(head).to_bytes(8, "little"), head, *kernels, host))


def unpack(code: bytes | memoryview) -> tuple[list[memoryview], memoryview]:
    """The kernel objects and the host's shared object; ``ArtifactError`` for other bytes."""
    view = memoryview(code)
    if bytes(view[:len(MAGIC)]) != MAGIC:
        raise ArtifactError("not the code of a program for a GPU",
                            expected=MAGIC.decode().strip(), got=repr(bytes(view[:len(MAGIC)])))
    start = len(MAGIC) + 8
    size = int.from_bytes(view[len(MAGIC):start], "little")
    at = start + size
    try:
        head = json.loads(bytes(view[start:at]))
        lengths, host = [int(n) for n in head["kernels"]], int(head["host"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError("the code of a program for a GPU is damaged", got=error) from None
    if min([*lengths, host]) < 0 or at + sum(lengths) + host != len(view):
        raise ArtifactError("the code of a program for a GPU is damaged",
                            expected=f"{at + sum(lengths) + host} bytes", got=len(view))
    kernels = []
    for length in lengths:
        kernels.append(view[at:at + length])
        at += length
    return kernels, view[at:]
