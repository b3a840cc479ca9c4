"""LLVM text through LLVM: parse, verify, optimise, emit."""

from __future__ import annotations

from llvmlite import binding as llvm

from weft.codegen.llvm.target_machine import target_machine
from weft.support.errors import InternalError
from weft.target import CpuTarget


def optimized_module(text: str, target: CpuTarget) -> llvm.ModuleRef:
    """The module after LLVM's optimiser. Text that LLVM refuses is a bug: ``InternalError``."""
    machine = target_machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError("LLVM refused generated code", got=error) from error
    _optimize(module, machine)
    return module


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    # Vectors, unrolling and tiling were decided in tir: what is asked of LLVM is promotion to
    # registers, invariant code motion and common subexpressions. The function pipeline of level
    # 1 does that in half the time of the module pipeline of level 2 (5.6 instead of 10.5 ms for
    # a convolution); kernels measured the same speed.
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
