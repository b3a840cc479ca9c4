"""The signature of a model whose inputs have dynamic shapes, before it is compiled."""

from __future__ import annotations

from collections.abc import Sequence

import weft
from weft.codegen import backend_of
from weft.compiler.options import CompileOptions
from weft.compiler.program.program import Port
from weft.compiler.sources import Source, is_onnx
from weft.compiler.vm.build import spec_of
from weft.compiler.vm.lower_module import input_ports, is_flat, output_ports
from weft.frontend.onnx import onnx_signature
from weft.frontend.torch import is_torch_program
from weft.ir.module import IRModule
from weft.ir.shape import as_shape
from weft.ir.types import TensorType, TupleType, is_static
from weft.runtime.manifest import Manifest
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import type_of


def has_dynamic_inputs(mod: IRModule) -> bool:
    """Whether a parameter of ``main`` has a symbolic dimension."""
    return not all(is_static(type_of(p)) for p in mod["main"].params)


def manifest_of_module(mod: IRModule, options: CompileOptions) -> Manifest:
    """The signature of ``main``; without outputs if the result is not a tuple of tensors."""
    main = mod["main"]
    result = type_of(main.body)
    outputs = output_ports(mod, result) if is_flat(result) else ()
    return _manifest(input_ports(mod, main), outputs, options,
                     output_is_tuple=isinstance(result, TupleType))


def manifest_of_program(model: Source, options: CompileOptions) -> Manifest | None:
    """The signature of a torch program with dynamic shapes; ``None`` for other models."""
    if not is_torch_program(model) or not model.is_dynamic:
        return None
    shapes = options.input_shapes or {}
    if all(is_static(TensorType(as_shape(shapes.get(p.name) or p.type.shape), p.type.dtype))
           for p in model.inputs):
        return None
    inputs, outputs = ([Port(p.name, p.type) for p in ports]
                       for ports in (model.inputs, model.outputs))
    return _manifest(inputs, outputs, options, output_is_tuple=len(outputs) != 1)


def manifest_of_onnx(model: Source, options: CompileOptions) -> Manifest | None:
    """The signature of an ONNX model with dynamic shapes; ``None`` for other models."""
    if not is_onnx(model):
        return None
    try:
        signature = onnx_signature(model, inputs=options.input_shapes)
    except UnsupportedModelError:  # the error of importing the model says more
        return None
    ports = [[Port(name, type_) for name, type_ in declared] for declared in signature]
    inputs, outputs = ports
    if all(is_static(port.type) for port in inputs):
        return None
    return _manifest(inputs, outputs, options, output_is_tuple=len(outputs) != 1)


def _manifest(inputs: Sequence[Port], outputs: Sequence[Port], options: CompileOptions, *,
              output_is_tuple: bool) -> Manifest:
    target = options.target
    return Manifest(
        inputs=tuple(map(spec_of, inputs)), outputs=tuple(map(spec_of, outputs)),
        target=backend_of(target).target_spec(target), arena_bytes=0, constants_bytes=0,
        output_is_tuple=output_is_tuple, weft_version=weft.__version__,
    )
