"""The memory of a compiled module, from its plan alone."""

from __future__ import annotations

from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.memory_plan import plan_memory
from weft.ir.module import IRModule


def planned_arena(mod: IRModule) -> int:
    """Bytes of the arena without the workspaces of kernels."""
    program = lower_program(run_pipeline(mod, CompileOptions.make()))
    return plan_memory(program, {}).arena_bytes[0]
