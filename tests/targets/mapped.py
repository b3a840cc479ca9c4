"""Windows and macOS libraries for x86-64, mapped into a process of Linux and called there.

The code of an exported model calls nothing, so all that an operating system does for it is to map
its segments and to add the address to the pointers in them.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tests.targets.models import Model
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.program_text import preamble
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary
from weft.target import CpuTarget

# Calls a function of Windows, whose arguments are in other registers.
_CALL = """
define i32 @call(ptr %f, ptr %inputs, ptr %outputs, ptr %workspace) {
  %code = call win64cc i32 %f(ptr %inputs, ptr %outputs, ptr %workspace)
  ret i32 %code
}"""


class Image:
    """Memory in which code may run."""

    def __init__(self, size: int) -> None:
        self.memory = mmap.mmap(-1, size, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.functions: dict[str, int] = {}

    def move(self, at: int, distance: int) -> None:
        """Add the distance from the preferred address to a pointer."""
        (value,) = struct.unpack_from("<Q", self.memory, at)
        struct.pack_into("<Q", self.memory, at, value + distance)


def windows(library: bytes) -> Image:
    """A DLL in memory."""
    (header,) = struct.unpack_from("<I", library, 60)
    (sections,) = struct.unpack_from("<H", library, header + 6)
    (optional_size,) = struct.unpack_from("<H", library, header + 20)
    optional = header + 24
    (base,) = struct.unpack_from("<Q", library, optional + 24)
    image = Image(struct.unpack_from("<I", library, optional + 56)[0])
    for n in range(sections):
        at = optional + optional_size + 40 * n
        size, place, stored, start = struct.unpack_from("<IIII", library, at + 8)
        image.memory[place : place + min(size, stored)] = library[start : start + min(size, stored)]
    directory = struct.unpack_from("<12I", library, optional + 112)
    _read_exports(image, directory[0])
    at, end = directory[10], directory[10] + directory[11]
    while at < end:
        page, size = struct.unpack_from("<II", image.memory, at)
        for entry in struct.unpack_from(f"<{(size - 8) // 2}H", image.memory, at + 8):
            if entry >> 12 == 10:
                image.move(page + (entry & 0xFFF), image.address - base)
        at += size
    return image


def _read_exports(image: Image, at: int) -> None:
    count, functions, names, ordinals = struct.unpack_from("<IIII", image.memory, at + 24)
    for n in range(count):
        (name,) = struct.unpack_from("<I", image.memory, names + 4 * n)
        (ordinal,) = struct.unpack_from("<H", image.memory, ordinals + 2 * n)
        (place,) = struct.unpack_from("<I", image.memory, functions + 4 * ordinal)
        end = image.memory.find(b"\0", name)
        image.functions[image.memory[name:end].decode()] = image.address + place


def macos(library: bytes) -> Image:
    """A dylib in memory."""
    commands = list(_commands(library))
    segments = [struct.unpack_from("<QQQQ", library, at + 24) for kind, at in commands
                if kind == 0x19]
    image = Image(max(place + size for place, size, _, _ in segments))
    for place, _, start, size in segments:
        image.memory[place : place + size] = library[start : start + size]
    for kind, at in commands:
        if kind == 2:
            first, count, strings, _ = struct.unpack_from("<IIII", library, at + 8)
            for n in range(count):
                name, flags, _, _, value = struct.unpack_from("<IBBHQ", library, first + 16 * n)
                end = library.index(b"\0", strings + name)
                if flags & 1:
                    text = library[strings + name : end].decode().removeprefix("_")
                    image.functions[text] = image.address + value
        elif kind in (0x22, 0x80000022):
            # The only bound address is that of the loader, which Zig's linker always asks for.
            start, size = struct.unpack_from("<II", library, at + 8)
            for place in _rebased(library[start : start + size], [s[0] for s in segments]):
                image.move(place, image.address)
    return image


def _commands(library: bytes) -> Iterator[tuple[int, int]]:
    at = 32
    for _ in range(struct.unpack_from("<I", library, 16)[0]):
        kind, size = struct.unpack_from("<II", library, at)
        yield kind, at
        at += size


def _rebased(code: bytes, segments: Sequence[int]) -> Iterator[int]:
    """The places of pointers: the opcodes REBASE_OPCODE_* of dyld."""
    at, place = 0, 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = code[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(code):
        opcode, immediate = code[at] & 0xF0, code[at] & 0xF
        at += 1
        if opcode == 0x00:
            return
        count, skip = 0, 0
        match opcode:
            case 0x20:
                place = segments[immediate] + number()
            case 0x30:
                place += number()
            case 0x40:
                place += 8 * immediate
            case 0x50:
                count = immediate
            case 0x60:
                count = number()
            case 0x70:
                count, skip = 1, number()
            case 0x80:
                count, skip = number(), number()
        for _ in range(count):
            yield place
            place += 8 + skip


FORMATS: dict[str, Callable[[bytes], Image]] = {"coff": windows, "macho": macos}


def run_mapped(library: bytes, models: Sequence[Model], object_format: str) -> tuple[bytes, int]:
    """What the models give, as ``driver`` writes it, and the status of the child that ran them."""
    with tempfile.TemporaryFile() as results:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _run(library, models, object_format, results.fileno())
                status = 0
            except Exception:  # noqa: BLE001 - the parent reports it as the end of the process
                traceback.print_exc()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        results.seek(0)
        return results.read(), status


def _run(library: bytes, models: Sequence[Model], object_format: str, file: int) -> None:
    image = FORMATS[object_format](library)
    host = CpuTarget.host()
    thunk = ObjectLibrary([build_text("call", preamble(host) + _CALL, host).object])
    pointer = ctypes.c_void_p
    through = ctypes.CFUNCTYPE(ctypes.c_int32, *[pointer] * 4)(thunk.address("call"))
    direct = [ctypes.CFUNCTYPE(ctypes.c_int32, *[pointer] * 3)(image.functions[f"{m.name}_run"])
              for m in models]
    for model, function in zip(models, direct, strict=True):
        outputs = [np.zeros(e.shape, e.dtype) for e in model.expected]
        room = np.zeros(model.workspace_bytes + 64, np.uint8)
        space = room.ctypes.data + -room.ctypes.data % 64
        given = [(pointer * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))
                 for arrays in (model.inputs, outputs)]
        arguments = (*map(ctypes.addressof, given), space)
        code = function(*arguments) if object_format == "macho" \
            else through(image.functions[f"{model.name}_run"], *arguments)
        parts = b"".join(a.tobytes() for a in outputs) if code == 0 else b""
        os.write(file, code.to_bytes(4, "little") + parts)
