"""Showing and dumping what a kernel becomes: loops, LLVM IR, assembly."""

from __future__ import annotations

from weft.codegen.llvm.build import emit_assembly, emit_llvm
from weft.strategy import LoweredKernel
from weft.support.config import config
from weft.support.dump import write_dump
from weft.support.log import Level, debug, enabled
from weft.target import CpuTarget
from weft.tir.printer import as_text


def is_wanted() -> bool:
    """Whether someone wants to see kernels on their way: they are then built here, every time."""
    return config.dump_dir is not None or bool(config.explain) or enabled(Level.LLVM)


def show_kernel(number: int, lowered: LoweredKernel, target: CpuTarget) -> None:
    """Write ``k07-name.tir``, ``.ll`` and ``.s`` into the dump folder; print as the ladder asks."""
    name = lowered.func.name
    if enabled(Level.LLVM):
        debug(Level.LLVM, "codegen", f"LLVM IR of {name}\n{emit_llvm(lowered.func, target)}")
    if enabled(Level.ASSEMBLY):
        debug(Level.ASSEMBLY, "codegen",
              f"assembly of {name}\n{emit_assembly(lowered.func, target)}")
    folder = config.dump_dir
    if folder is not None:
        texts = {"tir": as_text(lowered.func), "ll": emit_llvm(lowered.func, target),
                 "s": emit_assembly(lowered.func, target)}
        for suffix, text in texts.items():
            write_dump(folder, f"k{number:02d}-{name}.{suffix}", text)
