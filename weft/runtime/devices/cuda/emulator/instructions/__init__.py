"""Emitters: each writes one PTX instruction as Python over NumPy arrays."""

from __future__ import annotations

from weft.runtime.devices.cuda.emulator.instructions.arithmetic import ARITHMETIC
from weft.runtime.devices.cuda.emulator.instructions.asynchronous import ASYNCHRONOUS
from weft.runtime.devices.cuda.emulator.instructions.common import EmitterTable
from weft.runtime.devices.cuda.emulator.instructions.convert import CONVERT
from weft.runtime.devices.cuda.emulator.instructions.logic import LOGIC
from weft.runtime.devices.cuda.emulator.instructions.memory import MEMORY
from weft.runtime.devices.cuda.emulator.instructions.warp import WARP

EMITTERS: EmitterTable = {
    **ARITHMETIC, **LOGIC, **CONVERT, **MEMORY, **WARP, **ASYNCHRONOUS,
}  # fmt: skip
