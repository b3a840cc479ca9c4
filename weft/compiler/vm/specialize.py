"""Kernels with symbolic dimensions, specialized at run time.

The program holds such a kernel as the text of its function. When it is called, the function is
typed again with the shapes of the arguments, built like every kernel (the disk cache keeps it), and
loaded as a separate library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

import weft.op  # noqa: F401 - the text of kernels names operators
from weft.codegen import backend_of
from weft.compiler.build.cached_objects import support_objects
from weft.compiler.build.kernel_set import kernel_source
from weft.compiler.build.kernels import build_kernels
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode
from weft.compiler.vm.build import has_fixed_sizes, vm_kernel
from weft.ir import Function, Var, infer_expr, parse_expr, structural_hash, substitute
from weft.ir.dynamic import needs_values, static_body
from weft.ir.shape import Shape
from weft.ir.types import TensorType, TupleType, Type
from weft.runtime.library import Library
from weft.runtime.vm.kernels import KernelTable, Shapes
from weft.runtime.vm.program import SpecialKernel, VmKernel
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, UnsupportedModelError
from weft.transform.analysis.graph import type_of


@dataclass(frozen=True, slots=True)
class Specializer:
    """Compiles in this process with the options of the model.

    ``weft.runtime.vm.kernels`` caches the results.
    """

    options: CompileOptions

    def __call__(self, kernel: VmKernel, shapes: Shapes, values: Sequence[np.ndarray]
                 ) -> tuple[VmKernel, Library]:
        """The kernel for ``shapes``; raises ``TypeInferenceError`` for inconsistent arguments."""
        made, code = self.built(kernel, shapes, values)
        target = self.options.target
        backend = backend_of(target)
        return made, backend.load([code, *support_objects(backend, target)], target)

    def built(self, kernel: VmKernel, shapes: Shapes, values: Sequence[np.ndarray]
              ) -> tuple[VmKernel, bytes]:
        """The kernel for ``shapes`` and its object code."""
        function = with_shapes(parsed_kernel(kernel), shapes)
        if needs_values(function):
            body = infer_expr(static_body(function, values))
            function = Function(function.params, body, type_of(body), attrs=function.attrs)
        if not has_fixed_sizes(function):
            raise UnsupportedModelError(
                f"the result of {kernel.op} has a data-dependent shape without a bound",
                got=str(type_of(function.body))
            )
        source = kernel_source(function, structural_hash(function))
        target = self.options.target
        with self.options.settings():
            built = build_kernels([source], target, self.options.extensions.tir_passes)[0]
        return vm_kernel(source, built), built.object_code


def with_met_kernels(code: ModelCode, options: CompileOptions, table: KernelTable) -> ModelCode:
    """``code`` with the kernels of dynamic shapes that calls have met, compiled for ``options``."""
    program, specialize = code.manifest.vm, Specializer(options)
    if program is None:
        return code
    # Programs for several CPUs number their kernels each.
    numbers = {kernel.source: n for n, kernel in enumerate(program.kernels) if kernel.is_dynamic}
    special, objects = [], {}
    for source, shapes, values in table.met:
        number = numbers.get(source.source)
        if number is None:
            continue
        kernel, made = specialize.built(source, shapes, values)
        special.append(SpecialKernel(number, shapes, tuple(v.tobytes().hex() for v in values),
                                     kernel))
        objects[kernel.symbol] = made
    known = {kernel.symbol for kernel in program.kernels}
    added = [made for symbol, made in sorted(objects.items()) if symbol not in known]
    special.sort(key=lambda one: (one.number, one.shapes, one.values))
    manifest = replace(code.manifest, vm=replace(program, special=tuple(special)))
    return replace(code, manifest=manifest, objects=(*added, *code.objects))


def parsed_kernel(kernel: VmKernel) -> Function:
    """The function of a kernel with dynamic shapes."""
    function = parse_expr(kernel.source)
    if not isinstance(function, Function):
        raise InternalError("the source of a kernel is not a function", got=kernel.source)
    return function


def with_shapes(function: Function, shapes: Sequence[Shape]) -> Function:
    """The function with parameters of these shapes; tuples take one shape per field."""
    rest = iter(shapes)
    values = {}
    for param in function.params:
        annotation = _shaped(type_of(param), rest)
        values[param] = Var(param.name, annotation)
    body = infer_expr(substitute(function.body, values))
    return Function(tuple(values.values()), body, type_of(body), attrs=function.attrs)


def _shaped(type_: Type, shapes: Iterator[Shape]) -> Type:
    # Kernels do not take nested tuples.
    if isinstance(type_, TupleType):
        return TupleType(tuple(_shaped(field, shapes) for field in type_.fields))
    if isinstance(type_, TensorType):
        return TensorType(next(shapes), type_.dtype)
    raise InternalError("a kernel takes tensors", got=str(type_))
