"""Emitters: each writes one PTX instruction as Python over NumPy arrays."""

from __future__ import annotations

from weft.testing.cuda.instructions.arithmetic import ARITHMETIC
from weft.testing.cuda.instructions.asynchronous import ASYNCHRONOUS
from weft.testing.cuda.instructions.common import EmitterTable
from weft.testing.cuda.instructions.convert import CONVERT
from weft.testing.cuda.instructions.logic import LOGIC
from weft.testing.cuda.instructions.memory import MEMORY
from weft.testing.cuda.instructions.warp import WARP

EMITTERS: EmitterTable = {
    **ARITHMETIC, **LOGIC, **CONVERT, **MEMORY, **WARP, **ASYNCHRONOUS,
}  # fmt: skip
