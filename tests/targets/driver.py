"""A program that runs many exported models on a foreign machine, written in LLVM IR.

It reads the inputs of one model after the other from standard input and writes what each returned
(an int32, then the outputs, or nothing behind a code that is not 0) to standard output. It needs
no C library: on Linux it makes system calls, in WebAssembly it imports ``read`` and ``write``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.targets.models import Model
from weft.codegen.elf.relocatable import data_object
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.program_text import preamble
from weft.codegen.objects.elf_layout import layout_of
from weft.target import CpuTarget

_ALIGNMENT = 64
ENTRY = "run_models"
READ, WRITE, EXIT = range(3)
_ALLOCATED_CODE = 2 | 4  # flags of a section
# ``system(number, a, b, c)`` in machine code, since LLVM has no assembler here, and the numbers of
# read, write and exit. Move the arguments down, call the system, return.
_SYSTEM_CALLS = {
    "aarch64": ("e80300aa e00301aa e10302aa e20303aa 010000d4 c0035fd6", (63, 64, 93)),
    "riscv64": ("93080500 13850500 93050600 13860600 73000000 67800000", (63, 64, 93)),
    "arm": ("04702de5 0070a0e1 0100a0e1 0210a0e1 0320a0e1 000000ef 04709de4 1eff2fe1", (3, 4, 1)),
    "thumb": ("80b4 0746 0846 1146 1a46 00df 80bc 7047", (3, 4, 1)),
}


def driver_objects(models: Sequence[Model], target: CpuTarget) -> list[bytes]:
    """The objects of a program; it calls ``NAME_run`` of each model."""
    runs = frozenset(f"{m.name}_run" for m in models)
    code = build_text(ENTRY, driver_text(models, target), target,
                      externs=runs | {"system.read", "system.write", "system"}).object
    if target.arch == "wasm32":
        return [code]
    system = bytes.fromhex(_SYSTEM_CALLS[_family(target)][0].replace(" ", ""))
    held = bytearray(data_object("system", system, code))
    held[layout_of(code).sections(held)[1].header_at + 8] = _ALLOCATED_CODE
    return [code, bytes(held)]


def _family(target: CpuTarget) -> str:
    return "thumb" if target.triple.startswith("thumb") else target.arch


def driver_text(models: Sequence[Model], target: CpuTarget) -> str:
    """The LLVM module."""
    word = f"i{target.pointer_bits}"
    declarations = [f"declare i32 @{m.name}_run(ptr, ptr, ptr)" for m in models]
    largest = max(_places(m)[-1] for m in models)
    body = "\n".join(_call(m, number, word) for number, m in enumerate(models))
    return "\n".join([
        preamble(target), "",
        f"@arena = internal global [{largest} x i8] zeroinitializer, align {_ALIGNMENT}",
        "@status = internal global i32 0", *declarations, _system(target, word),
        _whole("read", word), _whole("write", word),
        f"define void @{ENTRY}() {{\n{body}\n{_exit(target, word)}}}",
        # What start files of a C library call.
        f"define i32 @main() {{\n  call void @{ENTRY}()\n  ret i32 0\n}}", ""])


def _places(model: Model) -> list[int]:
    """Where the inputs, the outputs and the workspace begin in the arena, and where all ends."""
    sizes = [a.nbytes for a in (*model.inputs, *model.expected)]
    places = [0]
    for size in (*sizes, model.workspace_bytes):
        places.append(-(-(places[-1] + size) // _ALIGNMENT) * _ALIGNMENT)
    return places


def _call(model: Model, number: int, word: str) -> str:
    places, count = _places(model), len(model.inputs)
    arrays = {"in": model.inputs, "out": model.expected}
    at = [f"getelementptr (i8, ptr @arena, {word} {place})" for place in places]
    lines = []
    for name, kept in arrays.items():
        first = 0 if name == "in" else count
        lines.append(f"%{name}{number} = alloca [{max(len(kept), 1)} x ptr]")
        for n in range(len(kept)):
            lines += [f"%{name}{number}.{n} = getelementptr ptr, ptr %{name}{number}, {word} {n}",
                      f"store ptr {at[first + n]}, ptr %{name}{number}.{n}"]
    lines += [f"call void @read.whole(ptr {at[n]}, {word} {array.nbytes})"
              for n, array in enumerate(model.inputs)]
    lines += [(f"%s{number} = call i32 @{model.name}_run(ptr %in{number}, ptr %out{number}, "
              f"ptr {at[-2]})"),
              f"store i32 %s{number}, ptr @status",
              f"call void @write.whole(ptr @status, {word} 4)",
              f"%ok{number} = icmp eq i32 %s{number}, 0",
              f"br i1 %ok{number}, label %write{number}, label %next{number}",
              f"write{number}:"]
    lines += [f"call void @write.whole(ptr {at[count + n]}, {word} {array.nbytes})"
              for n, array in enumerate(model.expected)]
    lines += [f"br label %next{number}", f"next{number}:"]
    return "\n".join(lines)


def _whole(name: str, word: str) -> str:
    """``read.whole`` and ``write.whole``: the call again until all bytes are done."""
    return f"""
define internal void @{name}.whole(ptr %first, {word} %size) noinline {{
entry:
  br label %test
test:
  %done = phi {word} [ 0, %entry ], [ %next, %part ]
  %more = icmp ult {word} %done, %size
  br i1 %more, label %part, label %end
part:
  %at = getelementptr i8, ptr %first, {word} %done
  %left = sub {word} %size, %done
  %got = call {word} @system.{name}(ptr %at, {word} %left)
  %next = add {word} %done, %got
  %good = icmp sgt {word} %got, 0
  br i1 %good, label %test, label %broken
broken:
  call void @llvm.trap()
  unreachable
end:
  ret void
}}
"""


def _system(target: CpuTarget, word: str) -> str:
    if target.arch == "wasm32":
        return "declare void @llvm.trap()" + "".join(
            f"\ndeclare {word} @system.{name}(ptr, {word}) #{number}\nattributes #{number} = "
            f'{{ "wasm-import-module"="env" "wasm-import-name"="{name}" }}'
            for number, name in enumerate(("read", "write")))
    return "declare void @llvm.trap()\n@system = external constant i8" + "".join(
        f"\ndefine internal {word} @system.{name}(ptr %at, {word} %size) noinline {{\n"
        f"{_system_call(target, word, number, f'{word} {number}, ptr %at, {word} %size')}\n"
        f"  ret {word} %got\n}}" for number, name in enumerate(("read", "write")))


def _exit(target: CpuTarget, word: str) -> str:
    if target.arch == "wasm32":
        return "  ret void\n"
    return f"{_system_call(target, word, EXIT, f'{word} 0, ptr null, {word} 0')}\n  unreachable\n"


def _system_call(target: CpuTarget, word: str, what: int, arguments: str) -> str:
    family = _family(target)
    number = _SYSTEM_CALLS[family][1][what]
    offset = int(family == "thumb")  # the lowest bit of an address of such code is set
    return (f"  %code = getelementptr i8, ptr @system, {word} {offset}\n"
            f"  %got = call {word} %code({word} {number}, {arguments})")


def inputs_of(models: Sequence[Model]) -> bytes:
    """What the program reads."""
    return b"".join(array.tobytes() for model in models for array in model.inputs)


def results_of(models: Sequence[Model], output: bytes) -> list[list[np.ndarray] | int]:
    """What each model gave, or the code that it returned, from what the program wrote."""
    found: list[list[np.ndarray] | int] = []
    place = 0
    for model in models:
        if place + 4 > len(output):
            break
        status = int.from_bytes(output[place : place + 4], "little")
        place += 4
        if status:
            found.append(status)
            continue
        arrays = []
        for like in model.expected:
            data = output[place : place + like.nbytes]
            if len(data) < like.nbytes:
                return found
            arrays.append(np.frombuffer(data, like.dtype).reshape(like.shape))
            place += like.nbytes
        found.append(arrays)
    return found
