"""LLVM's target machine for a ``CpuTarget``, one per process and target."""

from __future__ import annotations

import functools

from llvmlite import binding as llvm

from weft.runtime.cpu import known_features
from weft.support.errors import TargetError
from weft.target import CpuTarget


@functools.lru_cache(maxsize=1)
def initialize_llvm() -> None:
    """Register LLVM's back ends."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.lru_cache(maxsize=8)
def target_machine(target: CpuTarget) -> llvm.TargetMachine:
    """The machine that compiles for ``target``, kept for the life of the process."""
    return new_target_machine(target)


def new_target_machine(target: CpuTarget) -> llvm.TargetMachine:
    """Position-independent code at full optimisation for exactly the target's features.

    An execution engine takes the machine over and frees it, so each needs a new one. Raises
    ``TargetError`` where this LLVM has no back end for the triple.
    """
    initialize_llvm()
    try:
        back_end = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise TargetError(f"LLVM does not know {target.triple}", got=error) from error
    # Features that the CPU's name implies but the target lacks are switched off by name.
    features = ",".join(
        ("+" if name in target.features else "-") + name
        for name in sorted(known_features(target.arch))
    )
    return back_end.create_target_machine(
        cpu=target.cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )


@functools.lru_cache(maxsize=8)
def data_layout(target: CpuTarget) -> str:
    """The data layout that modules for ``target`` must state."""
    return str(target_machine(target).target_data)
