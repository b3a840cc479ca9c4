"""Kernels for sizes that are known only when the program runs.

A kernel with open sizes travels as the text of its function. When arguments arrive, the function
is typed again with their shapes, built as every kernel is (and found in the disk cache the next
time), and linked into a library of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import weft.op  # noqa: F401 - the text of kernels names operators
from weft.codegen import backend_of
from weft.compiler.build.kernel_set import kernel_source
from weft.compiler.build.kernels import build_kernels
from weft.compiler.vm.build import has_fixed_sizes, vm_kernel
from weft.ir.dynamic import needs_values, static_body
from weft.ir.expr import Function, Var
from weft.ir.structural import structural_hash
from weft.ir.text.parser import parse_expr
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import substitute
from weft.runtime.library import Library
from weft.runtime.vm.kernels import Shapes
from weft.runtime.vm.program import VmKernel
from weft.support.errors import InternalError, UnsupportedModelError
from weft.target import Target
from weft.tir.transform.registered import TirInsertion
from weft.transform.analysis.graph import type_of


@dataclass(frozen=True, slots=True)
class Specializer:
    """Compiles for ``target``, in this process; ``weft.runtime.vm.kernels`` keeps the results."""

    target: Target
    tir_passes: Sequence[TirInsertion] = ()

    def __call__(self, kernel: VmKernel, shapes: Shapes, values: Sequence[np.ndarray]
                 ) -> tuple[VmKernel, Library]:
        """Raises ``TypeInferenceError`` for shapes and values that do not fit each other."""
        function = with_shapes(_parsed(kernel), shapes)
        if needs_values(function):
            body = infer_expr(static_body(function, values))
            function = Function(function.params, body, type_of(body), attrs=function.attrs)
        if not has_fixed_sizes(function):
            raise UnsupportedModelError(
                f"the sizes that {kernel.op} gives depend on values", got=str(type_of(function))
            )
        source = kernel_source(function, structural_hash(function))
        built = build_kernels([source], self.target, self.tir_passes)[0]
        backend = backend_of(self.target)
        objects = [built.object_code, *backend.support_objects(self.target)]
        return vm_kernel(source, built), backend.load(objects, self.target)


def _parsed(kernel: VmKernel) -> Function:
    function = parse_expr(kernel.source)
    if not isinstance(function, Function):
        raise InternalError("the source of a kernel is no function", got=kernel.source)
    return function


def with_shapes(function: Function, shapes: Shapes) -> Function:
    """The function with tensors of these shapes (those in tuples among them) as parameters."""
    rest = iter(shapes)
    values = {}
    for param in function.params:
        annotation = _shaped(type_of(param), rest)
        values[param] = Var(param.name, annotation)
    body = infer_expr(substitute(function.body, values))
    return Function(tuple(values.values()), body, type_of(body), attrs=function.attrs)


def _shaped(type_: Type, shapes: Iterator[tuple[int, ...]]) -> Type:
    # Kernels take no nested tuples.
    if isinstance(type_, TupleType):
        return TupleType(tuple(_shaped(field, shapes) for field in type_.fields))
    if isinstance(type_, TensorType):
        return TensorType(next(shapes), type_.dtype)
    raise InternalError("a kernel takes tensors", got=str(type_))
