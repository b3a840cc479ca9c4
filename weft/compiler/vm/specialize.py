"""Kernels with symbolic dimensions, specialized at run time.

The program holds such a kernel as the text of its function. When it is called, the function is
typed again with the shapes of the arguments, built like every kernel (the disk cache keeps it), and
loaded as a separate library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

import weft.op  # noqa: F401 - the text of kernels names operators
from weft.codegen import backend_of
from weft.compiler.build.kept_objects import support_objects
from weft.compiler.build.kernel_set import kernel_source
from weft.compiler.build.kernels import build_kernels
from weft.compiler.options import CompileOptions
from weft.compiler.vm.build import has_fixed_sizes, vm_kernel
from weft.ir import Function, Var, infer_expr, parse_expr, structural_hash, substitute
from weft.ir.dynamic import needs_values, static_body
from weft.ir.types import TensorType, TupleType, Type
from weft.runtime.library import Library
from weft.runtime.vm.kernels import Shapes
from weft.runtime.vm.program import VmKernel
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
        function = with_shapes(_parsed(kernel), shapes)
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
        backend = backend_of(target)
        objects = [built.object_code, *support_objects(backend, target)]
        return vm_kernel(source, built), backend.load(objects, target)


def _parsed(kernel: VmKernel) -> Function:
    function = parse_expr(kernel.source)
    if not isinstance(function, Function):
        raise InternalError("the source of a kernel is not a function", got=kernel.source)
    return function


def with_shapes(function: Function, shapes: Shapes) -> Function:
    """The function with parameters of these shapes; tuples take one shape per field."""
    rest = iter(shapes)
    values = {}
    for param in function.params:
        annotation = _shaped(type_of(param), rest)
        values[param] = Var(param.name, annotation)
    body = infer_expr(substitute(function.body, values))
    return Function(tuple(values.values()), body, type_of(body), attrs=function.attrs)


def _shaped(type_: Type, shapes: Iterator[tuple[int, ...]]) -> Type:
    # Kernels do not take nested tuples.
    if isinstance(type_, TupleType):
        return TupleType(tuple(_shaped(field, shapes) for field in type_.fields))
    if isinstance(type_, TensorType):
        return TensorType(next(shapes), type_.dtype)
    raise InternalError("a kernel takes tensors", got=str(type_))
