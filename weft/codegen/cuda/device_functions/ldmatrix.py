"""Loads and stores of 8x8 matrices of 16-bit elements (PTX ISA, ``ldmatrix``, ``stmatrix``).

Thread ``8 * i + r`` gives the address of row ``r`` of matrix ``i``, 16 bytes, aligned to 16. Thread
``t`` receives elements ``(t // 4, 2 * (t % 4))`` and the next one of each matrix, one register per
matrix; with ``trans`` those of the transposed matrix.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg


def _load(count: int, *, transposes: bool) -> DeviceFunction:
    suffix, trans = ("_trans", ".trans") if transposes else ("", "")
    registers = "$d" if count > 1 else "{$d}"
    return DeviceFunction(
        f"ldmatrix_x{count}{suffix}",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [$row];",
        (reg("row", Kind.SHARED),), reg("d", Kind.B32, count), converges=True,
        doc=f"{count} matrices" + (", each transposed" if transposes else ""))


def _store(count: int) -> DeviceFunction:
    return DeviceFunction(
        f"stmatrix_x{count}", f"stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [$row], $value;",
        (reg("row", Kind.SHARED), reg("value", Kind.B32, count)), converges=True,
        capability=(9, 0), ptx_version=(7, 8), doc=f"store {count} matrices")


FUNCTIONS = (
    *(_load(count, transposes=t) for count in (1, 2, 4) for t in (False, True)),
    _store(2), _store(4),
    DeviceFunction("shared_address", "mov.u32 $d, $at;", (reg("at", Kind.SHARED),),
                   reg("d", Kind.B32), is_pure=True, doc="an address in shared memory as a number"),
)
