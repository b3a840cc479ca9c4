"""One kernel, from its primitive function to object code."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.codegen import backend_of
from weft.compiler.build.built_kernel import BuiltKernel, KernelFacts, shows_kernels
from weft.compiler.build.external_kernel import callback_object
from weft.compiler.build.kernel_set import operator_names
from weft.compiler.program.in_place import IN_PLACE
from weft.ir.expr import Function
from weft.strategy import LoweredKernel, lower_function
from weft.support import trace
from weft.support.cache import DiskCache
from weft.support.config import config
from weft.support.fingerprint import key_of
from weft.support.log import debug, enabled, write_dump
from weft.target import Target
from weft.tir import Buffer, PrimFunc
from weft.tir.printer import as_text
from weft.tir.transform.registered import TirInsertion
from weft.tir.transform.reuse_input import reuse_input
from weft.tir.verify import verify_func
from weft.transform.external.codegen import ObjectCode, PythonCode
from weft.transform.external.generate_external import external_code_of


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


def lower_kernel(name: str, function: Function, target: Target,
                 tir_passes: Sequence[TirInsertion] = ()) -> LoweredKernel:
    """The loop program of a kernel, verified if the configuration asks for it."""
    with trace.span(f"lower {name}", "kernel"):
        lowered = lower_function(function, target, name, tir_passes=tir_passes)
        lowered = _in_place(lowered, function)
    if config.verify >= 2:
        verify_func(lowered.func)
    return lowered


def _in_place(lowered: LoweredKernel, function: Function) -> LoweredKernel:
    """Put the result in the memory of the input that the function names, if possible."""
    number = function.attrs.get(IN_PLACE)
    if number is None:
        return lowered
    # The scalar parameters of symbolic sizes follow the result.
    source, target = (lowered.func.params[at] for at in (number, -1 - len(lowered.sizes)))
    if not (isinstance(source, Buffer) and isinstance(target, Buffer)):
        return lowered
    func = reuse_input(lowered.func, source, target)
    if func is None:
        return lowered
    return dataclasses.replace(lowered, func=func.with_attrs(**{IN_PLACE: number}))


def build_kernel(name: str, function: Function, target: Target, number: int = 0,
                 cache: DiskCache | None = None, tir_passes: Sequence[TirInsertion] = ()
                 ) -> BuiltKernel:
    """Lower and generate code; ``name`` becomes the symbol, ``number`` names dumped files.

    ``cache`` keeps object code by the text that it is generated from. It serves kernels with a
    user's operators, whose meaning is known only after lowering.
    """
    external = external_code_of(function)
    if external is not None:
        return _external_kernel(name, external, function, target)
    lowered = lower_kernel(name, function, target, tir_passes)
    if shows_kernels():
        show_kernel(number, lowered, target)
    with trace.span(f"codegen {name}", "kernel"):
        code = _object_code(lowered.func, target, cache)
    facts = KernelFacts(name, lowered.implementation, lowered.flops, lowered.bytes_moved,
                        lowered.func.attrs.get("workspace_bytes", 0),
                        lowered.func.attrs.get(IN_PLACE), lowered.sizes, lowered.seconds,
                        lowered.spent)
    return BuiltKernel(facts, code)


def _external_kernel(name: str, code: ObjectCode | PythonCode, function: Function,
                     target: Target) -> BuiltKernel:
    if isinstance(code, ObjectCode):
        facts = KernelFacts(code.symbol, "external object", 0, 0, 0)
        backend_of(target).check_object(code.object_code, code.symbol, name)
        return BuiltKernel(facts, code.object_code)
    region = " + ".join(operator_names(function))
    made, callback = callback_object(name, region, code, function, target)
    return BuiltKernel(KernelFacts(name, "external Python", 0, 0, 0), made, callback)


def _object_code(func: PrimFunc, target: Target, cache: DiskCache | None) -> bytes:
    backend = backend_of(target)
    text = None if cache is None else backend.kernel_key(func, target)
    if cache is None or text is None:
        return backend.build_kernel(func, target)
    key = key_of("object", text, target.kind)
    found = cache.get(key)
    if found is not None:
        return bytes(found)
    code = backend.build_kernel(func, target)
    cache.put(key, code)
    return code
