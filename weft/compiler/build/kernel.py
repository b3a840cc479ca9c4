"""One kernel from its function to object code."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from weft.codegen.llvm.build import build_object, emit_own_llvm
from weft.compiler.build import kernel_dump
from weft.compiler.build.external_kernel import Callback, callback_object, checked_object
from weft.compiler.build.fingerprint import key_of
from weft.compiler.build.kernel_set import operator_names
from weft.compiler.program.in_place import IN_PLACE
from weft.ir.expr import Function
from weft.strategy import LoweredKernel, lower_function
from weft.support import trace
from weft.support.cache import DiskCache
from weft.support.config import config
from weft.target import CpuTarget
from weft.tir.buffer import Buffer
from weft.tir.func import PrimFunc
from weft.tir.transform.registered import TirInsertion
from weft.tir.transform.reuse_input import reuse_input
from weft.tir.verify import verify_func
from weft.transform.external.codegen import ObjectCode, PythonCode
from weft.transform.external.generate_external import external_code_of


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What is known of a kernel beside its code.

    ``in_place`` is the number of the input whose memory the result must have, if any: that of a
    kernel that reads its input where it writes its result.
    """

    symbol: str
    implementation: str
    flops: int
    bytes_moved: int
    workspace_bytes: int
    in_place: int | None = None


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """``callback`` is the Python function that the code calls, where it calls one."""

    facts: KernelFacts
    object_code: bytes
    callback: Callback | None = None

    def to_bytes(self) -> bytes:
        """The form in which caches and workers pass a kernel on."""
        head = json.dumps(asdict(self.facts)).encode()
        return len(head).to_bytes(4, "little") + head + self.object_code

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> BuiltKernel:
        size = int.from_bytes(data[:4], "little")
        facts = KernelFacts(**json.loads(bytes(data[4 : 4 + size])))
        return BuiltKernel(facts, bytes(data[4 + size :]))


def lower_kernel(name: str, function: Function, target: CpuTarget,
                 tir_passes: Sequence[TirInsertion] = ()) -> LoweredKernel:
    """The loop program of a kernel, checked as the configuration asks."""
    with trace.span(f"lower {name}", "kernel"):
        lowered = lower_function(function, target, name, tir_passes=tir_passes)
        lowered = _in_place(lowered, function)
    if config.verify >= 2:
        verify_func(lowered.func)
    return lowered


def _in_place(lowered: LoweredKernel, function: Function) -> LoweredKernel:
    """The kernel over the memory of the input that its function names, where that can be."""
    number = function.attrs.get(IN_PLACE)
    if number is None:
        return lowered
    source, target = lowered.func.params[number], lowered.func.params[-1]
    if not (isinstance(source, Buffer) and isinstance(target, Buffer)):
        return lowered
    func = reuse_input(lowered.func, source, target)
    if func is None:
        return lowered
    return dataclasses.replace(lowered, func=func.with_attrs(**{IN_PLACE: number}))


def build_kernel(name: str, function: Function, target: CpuTarget, number: int = 0,
                 cache: DiskCache | None = None, tir_passes: Sequence[TirInsertion] = ()
                 ) -> BuiltKernel:
    """Lower and generate code; ``name`` becomes the symbol, ``number`` names dumped files.

    ``cache`` keeps objects by what they are made of. It serves kernels with a user's operators,
    of which lowering alone tells what they compute.
    """
    external = external_code_of(function)
    if external is not None:
        return _external_kernel(name, external, function, target)
    lowered = lower_kernel(name, function, target, tir_passes)
    if kernel_dump.is_wanted():
        kernel_dump.show_kernel(number, lowered, target)
    with trace.span(f"codegen {name}", "kernel"):
        code = _object_code(lowered.func, target, cache)
    facts = KernelFacts(name, lowered.implementation, lowered.flops, lowered.bytes_moved,
                        int(lowered.func.attrs.get("workspace_bytes", 0)),
                        lowered.func.attrs.get(IN_PLACE))
    return BuiltKernel(facts, code)


def _external_kernel(name: str, code: ObjectCode | PythonCode, function: Function,
                     target: CpuTarget) -> BuiltKernel:
    if isinstance(code, ObjectCode):
        facts = KernelFacts(code.symbol, "external object", 0, 0, 0)
        return BuiltKernel(facts, checked_object(code, name))
    region = " + ".join(operator_names(function))
    made, callback = callback_object(name, region, code, function, target)
    return BuiltKernel(KernelFacts(name, "external Python", 0, 0, 0), made, callback)


def _object_code(func: PrimFunc, target: CpuTarget, cache: DiskCache | None) -> bytes:
    if cache is None:
        return build_object(func, target).object
    # The symbols of Python bodies are digests of them.
    key = key_of("object", emit_own_llvm(func, target), str(target))
    found = cache.get(key)
    if found is not None:
        return bytes(found)
    code = build_object(func, target).object
    cache.put(key, code)
    return code
