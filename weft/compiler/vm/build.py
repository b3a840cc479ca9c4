"""Building a program for the virtual machine: bytecode, object code and constants."""

from __future__ import annotations

from collections.abc import Sequence

import weft
from weft.codegen import backend_of
from weft.compiler.build.built_kernel import BuiltKernel
from weft.compiler.build.cached_objects import support_objects
from weft.compiler.build.kernels import build_kernels
from weft.compiler.options import CompileOptions
from weft.compiler.program.constants import constant_layout, constant_specs, pack_constants
from weft.compiler.program.model_code import (
    ModelCode,
    callbacks_of,
)
from weft.compiler.program.ports import spec_of, tensors_of
from weft.compiler.program.program import KernelSource
from weft.compiler.vm.bounded_loop import build_bounded_loop, is_bounded_loop
from weft.compiler.vm.lower_module import VmSource, lower_module
from weft.compiler.vm.verify import verify_bytecode
from weft.ir import Function, IRModule, TensorType, is_static
from weft.ir.dynamic import bounds_of, needs_values, result_types, value_params
from weft.runtime.device import HOST
from weft.runtime.manifest import Manifest
from weft.runtime.sizes import evaluate
from weft.runtime.vm.program import TensorForm, VmKernel, VmProgram
from weft.runtime.vm.text import as_text
from weft.support import trace
from weft.support.errors import TargetError
from weft.target import Target
from weft.transform.analysis.graph import type_of


def build_vm_model(mod: IRModule, options: CompileOptions) -> ModelCode:
    """The bytecode, kernels and constants of a module in the ``lowered`` phase.

    ``TargetError`` if the kernels of the target do not run on the host.
    """
    backend = backend_of(options.target)
    if backend.device != HOST:
        raise TargetError(
            "programs for the virtual machine run on the host only", got=options.target,
            help="compile for fixed sizes, without closures, recursion and data types")
    with trace.span("lower program"):
        source = lower_module(mod)
        verify_bytecode(source.functions)
    loops = {kernel.name: build_bounded_loop(kernel, options) for kernel in source.kernels
             if is_bounded_loop(kernel.function)}
    fixed = [kernel for kernel in source.kernels
             if kernel.name not in loops and has_fixed_sizes(kernel.function)]
    codes = build_kernels(fixed, options.target, options.extensions.tir_passes)
    built = iter(codes)
    kernels: list[VmKernel] = []
    # Loops may call the same kernels.
    objects = {one.facts.symbol: one.object_code for _, called, _ in loops.values()
               for one in called}
    for kernel in source.kernels:
        if kernel.name in loops:
            made, _, objects[kernel.name] = loops[kernel.name]
            kernels.append(made)
        elif has_fixed_sizes(kernel.function):
            code = next(built)
            kernels.append(vm_kernel(kernel, code))
            objects[code.facts.symbol] = code.object_code
        else:
            kernels.append(_dynamic_kernel(kernel))
    support = support_objects(backend, options.target)
    offsets, total = constant_layout(source.constants)
    manifest = _manifest(source, kernels, offsets, total, options.target)
    called = {one.facts.symbol: one for _, built_, _ in loops.values() for one in built_}
    called |= {code.facts.symbol: code for code in codes}
    return ModelCode(manifest, (*objects.values(), *support),
                     pack_constants(source.constants, offsets, total),
                     callbacks_of([*called.values()]))


def program_text(source: VmSource) -> str:
    """The bytecode as text, in which operators name the kernels; builds no kernel."""
    kernels = tuple(VmKernel(k.name, len(_inputs(k)), _forms(k), op=k.text)
                    if has_fixed_sizes(k.function) else _dynamic_kernel(k) for k in source.kernels)
    return as_text(VmProgram(source.functions, kernels, source.entry, source.returns_value))


def has_fixed_sizes(function: Function) -> bool:
    """Whether all sizes of a kernel are static, or bounded, so that it is built ahead of time."""
    if needs_values(function) or not all(is_static(type_of(p)) for p in function.params):
        return False
    return is_static(type_of(function.body)) or bounds_of(function) is not None


def vm_kernel(kernel: KernelSource, built: BuiltKernel) -> VmKernel:
    """The description of a built kernel for the virtual machine."""
    facts, bounds = built.facts, bounds_of(kernel.function)
    work = [evaluate(size, {}) for size in (facts.workspace_bytes, facts.flops, facts.bytes_moved)]
    return VmKernel(facts.symbol, len(_inputs(kernel)), _forms(kernel), work[0],
                    facts.implementation, kernel.text, work[1], work[2],
                    input_shapes=tuple(t.concrete_shape for t in _inputs(kernel)),
                    counted=() if bounds is None else bounds.counted)


def _forms(kernel: KernelSource) -> tuple[TensorForm, ...]:
    return tuple(TensorForm(str(t.dtype), t.concrete_shape)
                 for t in result_types(kernel.function))


def _dynamic_kernel(kernel: KernelSource) -> VmKernel:
    return VmKernel(kernel.name, len(_inputs(kernel)), op=kernel.text,
                    source=str(kernel.function), value_args=value_params(kernel.function))


def _inputs(kernel: KernelSource) -> list[TensorType]:
    return [t for p in kernel.function.params for t in tensors_of(type_of(p))]


def _manifest(source: VmSource, kernels: Sequence[VmKernel], offsets: Sequence[int],
              constant_bytes: int, target: Target) -> Manifest:
    program = VmProgram(source.functions, tuple(kernels), source.entry, source.returns_value)
    return Manifest(
        inputs=tuple(map(spec_of, source.inputs)), outputs=tuple(map(spec_of, source.outputs)),
        target=backend_of(target).target_spec(target),
        arena_bytes=0, constants_bytes=constant_bytes,
        constants=constant_specs(source.constants, offsets),
        output_is_tuple=source.output_is_tuple, weft_version=weft.__version__, vm=program,
    )
