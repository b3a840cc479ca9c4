"""Artifacts for programs without Python: an object, a header, and a ``main.c`` that shows both."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.target_machine import data_layout
from weft.export.c_source import header_text, main_text
from weft.export.linker import link_relocatable
from weft.export.relocatable import data_object, localize
from weft.runtime.manifest import MAIN_SYMBOL, Manifest, TensorSpec
from weft.support.errors import ArtifactError
from weft.target import CpuTarget

_WEIGHTS = "weft_weights"
_RUN, _SIZE = "run", "workspace_size"
_ALIGNMENT = 64


def export_c(path: str | os.PathLike[str], manifest: Manifest, objects: Sequence[bytes],
             constants: np.ndarray, target: CpuTarget) -> None:
    """Write ``NAME.o``, ``NAME.h`` and ``main.c`` into the folder ``path``, which names the model.

    ``objects`` are main and kernels, without the runtime support: threads need state, and the
    object has none. Equal models give equal bytes. ``LinkerError`` where there is no linker,
    ``ArtifactError`` for programs of the virtual machine and folders that cannot be written.
    """
    if manifest.vm is not None:
        raise ArtifactError(
            "the program needs the virtual machine, which is not part of a C artifact",
            got=manifest.signature(),
            help="closures, data, recursion and sizes that vary need weft.load",
        )
    folder = Path(path)
    name = _identifier(folder.name)
    data = data_object(_WEIGHTS, np.ascontiguousarray(constants).view(np.uint8).data, objects[0])
    entry = build_text(f"{name}_{_RUN}", _entry_text(name, manifest, target), target,
                       externs=frozenset((MAIN_SYMBOL, _WEIGHTS))).object
    whole = link_relocatable([entry, *objects, data], manifest.target.arch)
    code = localize(whole, {f"{name}_{_RUN}", f"{name}_{_SIZE}"})
    files = {f"{name}.o": code, f"{name}.h": header_text(name, manifest).encode(),
             "main.c": main_text(name).encode()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (folder / file).write_bytes(content)
    except OSError as error:
        raise ArtifactError("the artifact cannot be written", where=path,
                            got=error.strerror or error) from None


def _identifier(name: str) -> str:
    made = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"net_{made}" if not made or made[0].isdigit() else made


def _entry_text(name: str, manifest: Manifest, target: CpuTarget) -> str:
    """What C calls: checks of the pointers, then ``weft_main``; and loops that run serially."""
    lines = [*_check_pointer("%inputs", bool(manifest.inputs)),
             *_check_pointer("%outputs", bool(manifest.outputs)),
             *_check_pointer("%workspace", manifest.arena_bytes > 0),
             *_check_arrays("%inputs", "in", manifest.inputs),
             *_check_arrays("%outputs", "out", manifest.outputs)]
    checks = "\n".join(f"  {line}" if not line.endswith(":") else line for line in lines)
    return f"""\
target datalayout = "{data_layout(target)}"
target triple = "{target.triple}"

@{_WEIGHTS} = external constant i8, align {_ALIGNMENT}
declare i32 @{MAIN_SYMBOL}(ptr, ptr, ptr, ptr)

define void @weft_parallel_launch(ptr %body, ptr %data, i64 %extent) nounwind {{
  %some = icmp sgt i64 %extent, 0
  br i1 %some, label %work, label %done
work:
  call void %body(i64 0, i64 %extent, ptr %data)
  br label %done
done:
  ret void
}}

define i64 @{name}_{_SIZE}() nounwind {{
  ret i64 {manifest.arena_bytes}
}}

define i32 @{name}_{_RUN}(ptr %inputs, ptr %outputs, ptr %workspace) nounwind {{
{checks}
  %address = ptrtoint ptr %workspace to i64
  %rest = and i64 %address, {_ALIGNMENT - 1}
  %aligned = icmp eq i64 %rest, 0
  br i1 %aligned, label %run, label %unaligned
run:
  %status = call i32 @{MAIN_SYMBOL}(ptr %inputs, ptr %outputs, ptr @{_WEIGHTS}, ptr %workspace)
  ret i32 %status
null:
  ret i32 1
unaligned:
  ret i32 2
}}
"""


def _check_pointer(pointer: str, wanted: bool) -> list[str]:
    if not wanted:
        return []
    label = pointer[1:].replace(".", "_")
    return [f"%is.{label} = icmp eq ptr {pointer}, null",
            f"br i1 %is.{label}, label %null, label %{label}.given", f"{label}.given:"]


def _check_arrays(array: str, prefix: str, ports: Sequence[TensorSpec]) -> list[str]:
    lines = []
    for number, port in enumerate(ports):
        if port.nbytes:
            at, value = f"%{prefix}{number}.at", f"%{prefix}{number}"
            lines += [f"{at} = getelementptr ptr, ptr {array}, i64 {number}",
                      f"{value} = load ptr, ptr {at}", *_check_pointer(value, wanted=True)]
    return lines
