"""What triples say: architecture, size of pointers, operating system, format of objects."""

from __future__ import annotations

import functools

from weft.support.dataclass import dataclass
from weft.support.errors import TargetError

# By the first word of a triple, or how it begins: the name of the architecture.
_ARCHITECTURES = {"aarch64": "aarch64", "arm64": "aarch64", "armv7": "arm", "thumbv7": "arm",
                  "thumbv8m": "arm", "riscv64": "riscv64", "wasm32": "wasm32", "x86_64": "x86_64"}
ARCHITECTURES = tuple(dict.fromkeys(_ARCHITECTURES.values()))
_POINTER_BITS = {"arm": 32, "wasm32": 32}
_APPLE = ("darwin", "driverkit", "ios", "macos", "macosx", "tvos", "watchos", "xros")
# Systems whose objects weft writes, by the words of triples. Those beside them are refused.
_SYSTEMS = {**dict.fromkeys(("darwin", "macos", "macosx"), "macos"), "windows": "windows",
            "win32": "windows", "wasi": "wasi", "wasip1": "wasi", "none": "none", "linux": "linux"}
# What ``weft targets`` lists: a system, and the triple that names it.
TRIPLES = {
    "Linux on x86-64": "x86_64-unknown-linux-gnu",
    "Linux on AArch64": "aarch64-unknown-linux-gnu",
    "Linux on ARMv7": "armv7-unknown-linux-gnueabihf",
    "Linux on RISC-V": "riscv64-unknown-linux-gnu",
    "WebAssembly": "wasm32-unknown-unknown",
    "Windows": "x86_64-pc-windows-msvc",
    "Windows on Arm": "aarch64-pc-windows-msvc",
    "macOS": "arm64-apple-macosx11.0",
    "macOS on Intel": "x86_64-apple-macosx11.0",
    "bare metal, Cortex-M": "thumbv7em-none-eabihf",
}
_REFUSED = ("aix", "cygwin", "emscripten", "mingw32", "uefi", *_APPLE)


@dataclass(frozen=True, slots=True)
class Platform:
    """The machine and the system of a triple.

    ``system`` is ``linux``, ``windows``, ``macos``, ``wasi``, ``none`` (bare metal), or empty for
    another one with ELF objects. ``object_format`` is ``elf``, ``coff``, ``macho`` or ``wasm``.
    """

    arch: str
    system: str

    @property
    def pointer_bits(self) -> int:
        return _POINTER_BITS.get(self.arch, 64)

    @property
    def has_c_library(self) -> bool:
        """Whether programs of the system have one, so that artifacts bring none of it along."""
        return self.object_format == "elf" and self.system != "none"

    @property
    def object_format(self) -> str:
        if self.arch == "wasm32":
            return "wasm"
        return {"windows": "coff", "macos": "macho"}.get(self.system, "elf")


@functools.lru_cache(maxsize=64)
def arch_of(triple: str) -> str:
    """The name of the architecture; the first word of the triple for an unsupported one."""
    word = triple.partition("-")[0]
    for start, arch in _ARCHITECTURES.items():
        if word == start or (arch == "arm" and word.startswith(start)):
            return arch
    return word


@functools.lru_cache(maxsize=64)
def platform_of(triple: str) -> Platform:
    """The platform of a triple; ``TargetError`` for one without code generation."""
    arch, rest = arch_of(triple), triple.split("-")[1:]
    if arch not in ARCHITECTURES:
        raise TargetError(f"the triple {triple!r} names an unsupported architecture", got=arch,
                          expected=", ".join(_ARCHITECTURES))
    found = ""
    for word in rest:
        name = word.lower().rstrip("0123456789.")
        named = _SYSTEMS.get(word) or _SYSTEMS.get(name)
        if not named and (word in _REFUSED or name in _REFUSED):
            raise TargetError(f"the triple {triple!r} names an unsupported operating system",
                              got=word, expected=", ".join(dict.fromkeys(_SYSTEMS.values())))
        if word.lower().endswith(("x32", "ilp32")):
            raise TargetError(f"the triple {triple!r} names a 32-bit environment", got=word,
                              expected="64-bit pointers")
        found = found or named or ""
    made = Platform(arch, found)
    if not _is_possible(made):
        raise TargetError(f"the triple {triple!r} names an unsupported operating system",
                          got=found, expected=_EXPECTED[arch])
    return made


# Architectures that have only some of the systems.
_EXPECTED = {"wasm32": "wasi or unknown", "arm": "linux or none", "riscv64": "linux or none",
             "x86_64": "linux, windows or macos", "aarch64": "linux, windows, macos or none"}


def _is_possible(platform: Platform) -> bool:
    return not platform.system or platform.system in _EXPECTED[platform.arch] or (
        platform.arch == "wasm32" and platform.system == "none")
