"""Relocations of x86-64 (System V ABI, AMD64 supplement, section 4.4)."""

from __future__ import annotations

import struct

from weft.support.errors import CodegenError

MACHINE = 62  # EM_X86_64
_R_64, _R_PC32, _R_PLT32, _R_GOTPCREL, _R_32, _R_32S, _R_PC64 = 1, 2, 4, 9, 10, 11, 24
_R_GOTPCRELX, _R_REX_GOTPCRELX = 41, 42
# Kinds that refer to a table entry with the address of the symbol.
THROUGH_TABLE = frozenset([_R_GOTPCREL, _R_GOTPCRELX, _R_REX_GOTPCRELX])
# Kinds of calls, which a jump may serve if the function is too far away.
CALLS = frozenset([_R_PLT32])
# jmp *0(%rip), followed by the address that it reads.
_JUMP = b"\xff\x25\x00\x00\x00\x00"
JUMP_BYTES = 16


def jump_to(address: int) -> bytes:
    """Code that continues at ``address``."""
    return (_JUMP + address.to_bytes(8, "little")).ljust(JUMP_BYTES, b"\xcc")


def apply(code: bytearray | memoryview, at: int, kind: int, symbol: int, addend: int, place: int,
          ) -> None:
    """Write the bytes at ``code[at]``, whose address is ``place``.

    ``symbol`` is the address of the symbol, or of its table entry (``THROUGH_TABLE``). Raises
    ``CodegenError`` for an unknown kind, and for an address that is out of reach.
    """
    value = symbol + addend
    if kind == _R_64:
        struct.pack_into("<Q", code, at, value & (1 << 64) - 1)
    elif kind == _R_PC64:
        struct.pack_into("<q", code, at, value - place)
    elif kind in (_R_PC32, _R_PLT32) or kind in THROUGH_TABLE:
        _pack(code, at, "<i", value - place)
    elif kind == _R_32:
        _pack(code, at, "<I", value)
    elif kind == _R_32S:
        _pack(code, at, "<i", value)
    else:
        raise CodegenError("unknown relocation of x86-64", got=f"type {kind}")


def _pack(code: bytearray | memoryview, at: int, form: str, value: int) -> None:
    try:
        struct.pack_into(form, code, at, value)
    except struct.error:
        raise CodegenError("a symbol is out of reach of 32 bits", got=hex(value)) from None
