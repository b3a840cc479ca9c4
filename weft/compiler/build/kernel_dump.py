"""Printing and dumping the stages of a kernel: loops, and the texts of its back end."""

from __future__ import annotations

from weft.codegen import backend_of
from weft.strategy import LoweredKernel
from weft.support.config import config
from weft.support.log import Level, debug, enabled, write_dump
from weft.target import Target
from weft.tir.printer import as_text


def is_wanted() -> bool:
    """Whether the configuration asks for the stages of kernels; they are then always built here."""
    return config.dump_dir is not None or bool(config.explain) or enabled(Level.LLVM)


def show_kernel(number: int, lowered: LoweredKernel, target: Target) -> None:
    """Write ``k07-name.tir``, ``.ll`` and ``.s`` into the dump folder; log them by debug level."""
    func, folder = lowered.func, config.dump_dir
    if folder is not None:
        write_dump(folder, f"k{number:02d}-{func.name}.tir", as_text(func))
    for stage in backend_of(target).text_stages.values():
        if enabled(stage.level):
            debug(stage.level, "codegen",
                  f"{stage.title} of {func.name}\n{stage.text(func, target)}")
        if folder is not None:
            write_dump(folder, f"k{number:02d}-{func.name}.{stage.suffix}",
                       stage.text(func, target))
