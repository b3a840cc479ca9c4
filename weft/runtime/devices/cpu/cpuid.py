"""Features of an x86-64 CPU as the CPU itself states them, by its CPUID instruction.

/proc/cpuinfo may be that of another machine: emulators of user programs and some containers show
the file of the host. CPUID states what the next instruction can be.
"""

from __future__ import annotations

import ctypes

from weft.runtime.devices.cpu.elf.pages import EXECUTE, READ, Pages
from weft.support.errors import CodegenError

# void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t out[4])
_CPUID = bytes.fromhex("53"          # push rbx
                       "4989d0"      # mov r8, rdx
                       "89f8"        # mov eax, edi
                       "89f1"        # mov ecx, esi
                       "0fa2"        # cpuid
                       "418900"      # mov [r8], eax
                       "41895804"    # mov [r8+4], ebx
                       "41894808"    # mov [r8+8], ecx
                       "4189500c"    # mov [r8+12], edx
                       "5b" "c3")    # pop rbx; ret
# uint32_t states(): what the system saves of the registers (XCR0)
_XGETBV = bytes.fromhex("31c9" "0f01d0" "c3")
_EAX, _EBX, _ECX, _EDX = range(4)
# LLVM's name of a feature -> leaf, subleaf, register, bit.
_BITS: dict[str, tuple[int, int, int, int]] = {
    "sse3": (1, 0, _ECX, 0), "pclmul": (1, 0, _ECX, 1), "ssse3": (1, 0, _ECX, 9),
    "fma": (1, 0, _ECX, 12), "cx16": (1, 0, _ECX, 13), "sse4.1": (1, 0, _ECX, 19),
    "sse4.2": (1, 0, _ECX, 20), "movbe": (1, 0, _ECX, 22), "popcnt": (1, 0, _ECX, 23),
    "aes": (1, 0, _ECX, 25), "avx": (1, 0, _ECX, 28), "f16c": (1, 0, _ECX, 29),
    "lzcnt": (0x80000001, 0, _ECX, 5),
    "bmi": (7, 0, _EBX, 3), "avx2": (7, 0, _EBX, 5), "bmi2": (7, 0, _EBX, 8),
    "avx512f": (7, 0, _EBX, 16), "avx512dq": (7, 0, _EBX, 17), "adx": (7, 0, _EBX, 19),
    "avx512ifma": (7, 0, _EBX, 21), "avx512cd": (7, 0, _EBX, 28), "avx512bw": (7, 0, _EBX, 30),
    "avx512vl": (7, 0, _EBX, 31),
    "avx512vbmi": (7, 0, _ECX, 1), "avx512vbmi2": (7, 0, _ECX, 6), "gfni": (7, 0, _ECX, 8),
    "vaes": (7, 0, _ECX, 9), "vpclmulqdq": (7, 0, _ECX, 10), "avx512vnni": (7, 0, _ECX, 11),
    "avx512bitalg": (7, 0, _ECX, 12), "avx512vpopcntdq": (7, 0, _ECX, 14),
    "avx512vp2intersect": (7, 0, _EDX, 8), "amx-bf16": (7, 0, _EDX, 22),
    "avx512fp16": (7, 0, _EDX, 23), "amx-tile": (7, 0, _EDX, 24), "amx-int8": (7, 0, _EDX, 25),
    "avxvnni": (7, 1, _EAX, 4), "avx512bf16": (7, 1, _EAX, 5),
}
_EXTENDED = 0x80000000
_OSXSAVE = (1, 0, _ECX, 27)
# What XCR0 must have for a feature to be usable: registers of 256 bits, of 512 bits, tiles.
_AVX, _AVX512, _AMX = 0x6, 0xE6, 0x60000
_NEED_AVX = frozenset(["avx", "avx2", "avxvnni", "f16c", "fma", "vaes", "vpclmulqdq"])


def x86_features() -> frozenset[str] | None:
    """The usable features of ``host.X86_FEATURES``; ``None`` if the CPU cannot be asked."""
    try:
        asked = _Instructions()
    except (CodegenError, MemoryError, OSError, AttributeError):
        return None  # the system forbids executable memory
    leaves = {(leaf, sub): asked.cpuid(leaf, sub) for leaf, sub, _, _ in _BITS.values()}
    highest = {base: asked.cpuid(base, 0)[_EAX] for base in (0, _EXTENDED)}

    def has(bit: tuple[int, int, int, int]) -> bool:
        leaf, sub, register, number = bit
        known = leaf <= highest[leaf & _EXTENDED]
        return known and bool(leaves[leaf, sub][register] >> number & 1)

    saved = asked.saved_states() if has(_OSXSAVE) else 0
    return frozenset(name for name, bit in _BITS.items() if has(bit) and is_usable(name, saved))


def is_usable(name: str, saved: int) -> bool:
    """Whether the system saves the registers that a feature uses."""
    need = _AVX512 if name.startswith("avx512") else _AMX if name.startswith("amx") \
        else _AVX if name in _NEED_AVX else 0
    return saved & need == need


class _Instructions:
    """The two instructions as functions."""

    def __init__(self) -> None:
        code = _CPUID + _XGETBV
        self._pages = Pages(len(code))
        self._pages.bytes[:len(code)] = code
        self._pages.protect([(0, len(code), READ | EXECUTE)])
        at, word = self._pages.address, ctypes.c_uint32
        self._cpuid = ctypes.CFUNCTYPE(None, word, word, ctypes.c_void_p)(at)
        self.saved_states = ctypes.CFUNCTYPE(word)(at + len(_CPUID))

    def cpuid(self, leaf: int, subleaf: int) -> tuple[int, ...]:
        """The registers eax to edx."""
        found = (ctypes.c_uint32 * 4)()
        self._cpuid(leaf, subleaf, ctypes.addressof(found))
        return tuple(found)
