"""LLVM IR to PTX by LLVM's NVPTX back end, through llvmlite."""

from __future__ import annotations

import functools
import threading

from llvmlite import binding as llvm

from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.target.cuda_target import TRIPLE

_code_generator = threading.Lock()


@functools.lru_cache(maxsize=8)
def nvptx_machine(arch: str, ptx_version: tuple[int, int]) -> llvm.TargetMachine:
    """The code generator for an architecture and a version of PTX."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    major, minor = ptx_version
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=arch, features=f"+ptx{major}{minor}", opt=3)


def ptx_by_nvptx(text: str, target: CudaTarget) -> str:
    """The PTX of a module. ``InternalError`` if LLVM rejects the text, which is a bug of weft."""
    machine = nvptx_machine(target.arch, target.ptx_version)
    with _code_generator:
        return str(machine.emit_assembly(optimized_module(text, machine)))


def optimized_module(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """The module after LLVM's optimisations, without those that tir has made already."""
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError("LLVM rejected generated code", got=error) from error
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_unrolling = False
    options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module
