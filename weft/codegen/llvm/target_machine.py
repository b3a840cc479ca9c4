"""LLVM target machines of ``CpuTarget`` objects."""

from __future__ import annotations

import functools

from llvmlite import binding as llvm

from weft.runtime.cpu import known_features
from weft.support.errors import TargetError
from weft.target import CpuTarget


@functools.lru_cache(maxsize=1)
def initialize_llvm() -> None:
    """Register all back ends of LLVM, once per process."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.lru_cache(maxsize=8)
def target_machine(target: CpuTarget) -> llvm.TargetMachine:
    """The cached target machine of ``target``."""
    return new_target_machine(target)


def new_target_machine(target: CpuTarget) -> llvm.TargetMachine:
    """A target machine for position-independent code with exactly the features of ``target``.

    An execution engine takes ownership of its machine, so each engine needs a new one. Raises
    ``TargetError`` if this LLVM has no back end for the triple.
    """
    initialize_llvm()
    try:
        back_end = llvm.Target.from_triple(target.triple)
    except RuntimeError as error:
        raise TargetError(f"unknown target triple: {target.triple}", got=error) from error
    # The CPU name enables features by default, so those that the target lacks are disabled.
    features = ",".join(
        ("+" if name in target.features else "-") + name
        for name in sorted(known_features(target.arch))
    )
    return back_end.create_target_machine(
        cpu=target.cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )


@functools.lru_cache(maxsize=8)
def data_layout(target: CpuTarget) -> str:
    """The data layout string of modules for ``target``."""
    return str(target_machine(target).target_data)
