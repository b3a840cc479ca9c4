"""LLVM IR to PTX by LLVM's NVPTX back end, through llvmlite."""

from __future__ import annotations

import functools
import re
import threading

from llvmlite import binding as llvm

from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.target.cuda_target import TRIPLE

# LLVM prints the files of debug locations, and a section without contents, at the end.
_FILE = re.compile(r"^\t\.file\t[^\n]*", re.MULTILINE)
_DEBUG_SECTION = re.compile(r"^\t\.section\t\.debug_\w+\t\{\s*\}\n", re.MULTILINE)
_ADDRESS_SIZE = re.compile(r"^\.address_size 64$", re.MULTILINE)
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
        return _arranged(str(machine.emit_assembly(optimized_module(text, machine))))


def _arranged(ptx: str) -> str:
    """The PTX with its file directives in front, and without empty debug sections."""
    files = "\n".join(_FILE.findall(ptx))
    return _ADDRESS_SIZE.sub(lambda m: f"{m[0]}\n{files}" if files else m[0],
                             _DEBUG_SECTION.sub("", _FILE.sub("", ptx)), count=1)


def optimized_module(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    """The module after LLVM's optimisations, without those that tir has already applied."""
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
