"""Tensor maps: what ``cuTensorMapEncodeTiled`` encodes, in an encoding of the emulator's own."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from weft.support.dataclass import dataclass
from weft.testing.cuda.errors import CudaEmulationError

_MAGIC = 0x7EF7_7A90
_FORMAT = "<IBBBBQ5Q4Q5H5H"
SWIZZLES = (0, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class TensorMap:
    """A tensor in global memory and the box that one copy moves; innermost axis first.

    ``strides`` are in bytes, without that of the innermost axis. ``swizzle`` is 0, 32, 64 or 128.
    """

    address: int
    element_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    swizzle: int = 0
    fill_nan: bool = False

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes to shared memory."""
        total = self.element_bytes
        for size in self.box:
            total *= size
        return total


def encode_tensor_map(
    address: int, element_bytes: int, dims: Sequence[int], strides: Sequence[int],
    box: Sequence[int], element_strides: Sequence[int] = (), swizzle: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """128 bytes for kernels of the emulator. Raises CudaEmulationError where the driver refuses."""
    rank = len(dims)
    element_strides = tuple(element_strides) or (1,) * rank
    _check(address, element_bytes, dims, strides, box, swizzle)
    pad = (0,) * (5 - rank)
    fields = (*dims, *pad, *strides, *(0,) * (4 - len(strides)), *box, *pad, *element_strides, *pad)
    data = struct.pack(_FORMAT, _MAGIC, rank, element_bytes, SWIZZLES.index(swizzle), fill_nan,
                       address, *fields)
    return data.ljust(128, b"\0")


def _check(
    address: int, element_bytes: int, dims: Sequence[int], strides: Sequence[int],
    box: Sequence[int], swizzle: int,
) -> None:
    rank = len(dims)
    problem = None
    if not 1 <= rank <= 5 or len(strides) != rank - 1 or len(box) != rank:
        problem = f"rank {rank} with {len(strides)} strides and a box of {len(box)}"
    elif address % 16:
        problem = f"address {address:#x} is not a multiple of 16"
    elif any(stride % 16 for stride in strides):
        problem = f"strides {tuple(strides)} are not multiples of 16 bytes"
    elif any(not 1 <= size <= 256 for size in box):
        problem = f"box {tuple(box)} has sizes outside of 1 to 256"
    elif swizzle not in SWIZZLES:
        problem = f"swizzle {swizzle}"
    elif swizzle and box[0] * element_bytes > swizzle:
        problem = f"box of {box[0] * element_bytes} bytes in a row is wider than the swizzle"
    elif box[0] * element_bytes % 16:
        problem = f"box of {box[0] * element_bytes} bytes in a row, not a multiple of 16"
    if problem is not None:
        raise CudaEmulationError("invalid tensor map", got=problem)


def decode_tensor_map(data: bytes) -> TensorMap | None:
    """The tensor map in 128 bytes, or None if they hold none."""
    values = struct.unpack_from(_FORMAT, data)
    if values[0] != _MAGIC:
        return None
    rank = values[1]
    return TensorMap(
        values[5], values[2], values[6 : 6 + rank], values[11 : 11 + rank - 1],
        values[15 : 15 + rank], values[20 : 20 + rank], SWIZZLES[values[3]], bool(values[4]))
