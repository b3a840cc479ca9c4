"""Parameters in the file of TVM and NNVM: ``runtime.save_param_dict`` and ``SaveParams`` write it.

A file has a magic number and 8 reserved bytes, the names, then the arrays in their order. Lists
begin with their length and names with theirs, in 8 bytes. An array has a magic number, 8 reserved
bytes, its device, the number of axes, the code, bits and lanes of its dtype, its sizes, the number
of its bytes, and these. All numbers are little-endian.
"""

from __future__ import annotations

import math
import struct
from pathlib import Path

import ml_dtypes
import numpy as np

from weft.support.errors import InvalidModelError
from weft.support.safetensors_file import map_file

MAGIC, ARRAY_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_MOST_AXES = 64
# The code and bits of DLPack's dtypes.
_DTYPES = {(code, np.dtype(dtype).itemsize * 8): np.dtype(dtype) for code, dtypes in (
    (0, (np.int8, np.int16, np.int32, np.int64)),
    (1, (np.uint8, np.uint16, np.uint32, np.uint64)),
    (2, (np.float16, np.float32, np.float64)), (4, (ml_dtypes.bfloat16,))) for dtype in dtypes}
_DTYPES[1, 1] = _DTYPES[6, 8] = np.dtype(np.bool_)  # one bit, or a type of its own


def is_tvm_params(path: Path) -> bool:
    """Whether a file begins as one of parameters of TVM."""
    try:
        with path.open("rb") as file:
            return file.read(8) == MAGIC.to_bytes(8, "little")
    except OSError:
        return False


def read_tvm_params(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, over a map of the file; they may not be written to.

    Raises ``InvalidModelError`` for a file that is damaged or cut short, and for a dtype that
    NumPy lacks.
    """
    reader = _Reader(path)
    reader.expect(MAGIC)
    names = [reader.text() for _ in range(reader.length("names"))]
    if reader.length("arrays") != len(names):
        raise reader.damaged("an array for each name", f"{len(names)} names")
    return {name: reader.array(name) for name in names}


class _Reader:
    """The rest of a file."""

    def __init__(self, path: Path) -> None:
        self._path, self._data, self._at = path, map_file(path), 0

    def _take(self, form: str) -> tuple[int, ...]:
        size = struct.calcsize(form)
        if self._at + size > len(self._data):
            raise self.damaged("more bytes", f"the end at byte {len(self._data)}")
        found = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return found

    def expect(self, magic: int) -> None:
        """Read a magic number and the reserved bytes behind it."""
        found, _ = self._take("<QQ")
        if found != magic:
            raise self.damaged(f"the number {magic:#x}", f"{found:#x}")

    def length(self, what: str) -> int:
        """A number of things, of which each takes bytes of the file."""
        (found,) = self._take("<Q")
        if found > len(self._data) - self._at:
            raise self.damaged(f"{what} inside the file", found)
        return found

    def text(self) -> str:
        size = self.length("a name")
        self._at += size
        try:
            return self._data[self._at - size:self._at].decode()
        except UnicodeDecodeError as error:
            raise self.damaged("a name in UTF-8", error) from None

    def array(self, name: str) -> np.ndarray:
        self.expect(ARRAY_MAGIC)
        *_, axes, code, bits, lanes = self._take("<iiiBBH")
        if not 0 <= axes <= _MOST_AXES:
            raise self.damaged(f"a number of axes of {name}", axes)
        shape = self._take(f"<{axes}q")
        dtype = _DTYPES.get((code, bits))
        if dtype is None or lanes != 1:
            raise InvalidModelError("a tensor of an unknown dtype", where=f"{self._path}, {name}",
                                    got=f"code {code}, {bits} bits, {lanes} lanes")
        size = self.length(f"the bytes of {name}")
        if min(shape, default=0) < 0 or size != math.prod(shape) * dtype.itemsize:
            raise self.damaged(f"the bytes of {shape} {dtype}", f"{size} of {name}")
        self._at += size
        start = self._at - size
        try:
            return np.frombuffer(self._data, dtype, math.prod(shape), start).reshape(shape)
        except ValueError as error:  # sizes beyond those of NumPy, one of them 0
            raise self.damaged(f"the shape of {name}", error) from None

    def damaged(self, expected: str, got: object) -> InvalidModelError:
        return InvalidModelError("a file of TVM's parameters is damaged or cut short",
                                 where=self._path, expected=expected, got=got)
