"""LLVM target machines of ``CpuTarget`` objects."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import binding as llvm

from weft.runtime.devices.cpu.host import known_features
from weft.support.errors import InternalError, TargetError
from weft.support.stage_times import stage
from weft.target import CpuTarget


@functools.lru_cache(maxsize=1)
def initialize_llvm() -> None:
    """Register all back ends of LLVM, once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


# Features of newer CPUs whose instructions LLVM chooses unasked, and which no target lists: an
# artifact states what it needs in terms of the listed ones.
UNLISTED_FEATURES = ("avx10.1", "avx10.2", "avxifma", "avxneconvert", "avxvnniint16", "avxvnniint8",
                     "ccmp", "cf", "egpr", "ndd", "nf", "ppx", "push2pop2", "sse4a", "zu")


@functools.lru_cache(maxsize=8)
def target_machine(target: CpuTarget) -> llvm.TargetMachine:
    """The cached target machine of ``target``."""
    return new_target_machine(target)


def new_target_machine(target: CpuTarget) -> llvm.TargetMachine:
    """A target machine with exactly the features of ``target``.

    Code is position-independent, except where nothing could move it: WebAssembly, bare metal. An
    execution engine takes ownership of its machine, so each engine needs a new one. Raises
    ``TargetError`` if this LLVM has no back end for the triple.
    """
    initialize_llvm()
    try:
        back_end = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise TargetError(f"unknown target triple: {target.triple}", got=error) from error
    # The CPU name enables features by default, so those that the target lacks are disabled.
    others = UNLISTED_FEATURES if target.arch == "x86_64" else ()
    # A CPU name of weft's that LLVM does not know stands for its features.
    cpu = "generic" if (target.arch, target.cpu) == ("wasm32", "simd") else target.cpu
    is_fixed = target.arch == "wasm32" or target.platform.system == "none"
    features = ",".join(
        ("+" if name in target.features else "-") + name
        for name in sorted((*known_features(target.arch), *others))
    )
    return back_end.create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="static" if is_fixed else "pic",
        codemodel="small"
    )


@functools.lru_cache(maxsize=8)
def data_layout(target: CpuTarget) -> str:
    """The data layout string of modules for ``target``."""
    return str(target_machine(target).target_data)


# Loop strength reduction (LSR) turns multiplications in addresses into additions. It helps small
# loops: copying three interleaved channels element by element takes 39 us with it, 52 us without.
# But its compile time is quadratic in the number of addresses of a loop. It took a third of all
# code generation, and no kernel with more lines than this ran faster because of it.
STRENGTH_REDUCED_LINES = 150

_code_generator = threading.Lock()


def wants_strength_reduction(text: str) -> bool:
    """Whether a module is small enough for loop strength reduction."""
    return text.count("\n") <= STRENGTH_REDUCED_LINES


@stage("LLVM")
def object_code(module: llvm.ModuleRef, target: CpuTarget, *, reduce_strength: bool) -> bytes:
    """A relocatable ELF object."""
    with _strength_reduction(reduce_strength):
        code: bytes = target_machine(target).emit_object(module)
    return code


def assembly(module: llvm.ModuleRef, target: CpuTarget, *, reduce_strength: bool) -> str:
    """The code of ``object_code`` as assembly text."""
    with _strength_reduction(reduce_strength):
        return str(target_machine(target).emit_assembly(module))


@contextmanager
def _strength_reduction(wanted: bool) -> Iterator[None]:
    """Generate code inside the block with or without loop strength reduction.

    It is a global option of LLVM, not one of the target machine. So a lock admits one thread at a
    time, and the option is reset for other users of LLVM in this process.
    """
    with _code_generator:
        if wanted:
            yield
            return
        llvm.set_option("weft", "-disable-lsr=true")
        try:
            yield
        finally:
            llvm.set_option("weft", "-disable-lsr=false")


@stage("LLVM")
def optimized_module(text: str, target: CpuTarget) -> llvm.ModuleRef:
    """The optimised module. ``InternalError`` if LLVM rejects the text, which is a bug of weft."""
    machine = target_machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError("LLVM rejected generated code", got=error) from error
    _optimize(module, machine)
    return module


def _optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    # tir has already vectorised, unrolled and tiled. LLVM shall promote slots to registers, move
    # loop-invariant code and eliminate common subexpressions. The -O1 function pipeline does that
    # in half the time of the -O2 module pipeline (5.6 ms instead of 10.5 ms for a convolution), and
    # kernels run at the same speed.
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
