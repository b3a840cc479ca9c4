"""Declared types of a model, and its inputs as parameters: tensors, sequences, optional values."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from weft.frontend.onnx.dimensions import Dimensions, identifier
from weft.frontend.onnx.loader import load_model
from weft.frontend.onnx.node import ABSENT, Value
from weft.frontend.onnx.protos import TypeProto, ValueInfoProto
from weft.frontend.onnx.tensors import dtype_of
from weft.ir import Span, TensorType, Tuple, TupleType, Var, name_of
from weft.ir.shape import ANY, Dim, SymDim, as_shape, substitute_dim
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, InvalidModelError, UnsupportedModelError

# A shape; for a sequence, one shape per tensor; ``None`` for an absent optional value.
Override = Sequence[object] | None


@dataclass
class GraphInputs:
    """Creates the parameters; ``params`` maps the input names that users pass to parameters."""

    source: str
    dimensions: Dimensions
    params: dict[str, Var] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def value_of(self, value: ValueInfoProto, override: Override, *, given: bool) -> Value:
        """Convert a graph input, with one parameter for each of its tensors.

        ``given`` says whether the user passed an override, since ``None`` is a valid override.
        Raises ``InvalidModelError`` for a missing shape and ``InvalidInputError`` for an override
        that does not match the declared type.
        """
        kind = value.type
        if kind.WhichOneof("value") == "optional_type":
            if not given:
                raise self._unknown(value, "is optional", "None, or a shape")
            if override is None:
                return ABSENT
            kind = kind.optional_type.elem_type
        if kind.WhichOneof("value") == "sequence_type":
            if override is None:
                raise self._unknown(value, "is a sequence", "[(2, 3), (2, 3)]")
            return self._sequence(value, kind.sequence_type.elem_type, override)
        return self._parameter(value.name, kind, override)

    def _unknown(self, value: ValueInfoProto, what: str, example: str) -> InvalidModelError:
        return InvalidModelError(
            f"graph input {value.name!r} {what}, and its shape is not given",
            where=Span(self.source, node=value.name),
            help=f'from_onnx(model, inputs={{"{value.name}": {example}}})',
        )

    def _sequence(self, value: ValueInfoProto, kind: TypeProto, shapes: Sequence[object]) -> Tuple:
        if not all(isinstance(shape, Sequence) for shape in shapes):
            raise InvalidInputError(
                f"input {value.name!r} is a sequence of tensors",
                where=Span(self.source, node=value.name),
                expected="one shape for each tensor",
                got=str(shapes),
            )
        items = [
            self._parameter(f"{value.name}[{i}]", kind, shape)  # type: ignore[arg-type]
            for i, shape in enumerate(shapes)
        ]
        types = TupleType(tuple(item.checked_type for item in items))  # type: ignore[arg-type, misc]
        return Tuple(tuple(items), span=Span(self.source, node=value.name), checked_type=types)

    def _parameter(self, name: str, kind: TypeProto, override: Override) -> Var:
        type_ = self._tensor_type(name, kind, override)
        span = Span(self.source, node=name)
        var = Var(identifier(name, self._taken), type_, span=span).with_type(type_)
        self.params[name] = var
        return var

    def _tensor_type(self, name: str, kind: TypeProto, override: Override) -> TensorType:
        where = Span(self.source, node=name)
        dtype = dtype_of(kind.tensor_type.elem_type, f"graph input {name!r}", where)
        has_shape = kind.tensor_type.HasField("shape")
        if override is None:
            if not has_shape:
                raise InvalidModelError(
                    f"the shape of graph input {name!r} is missing",
                    where=where,
                    help=f'give it one: inputs={{"{name}": (1, 3, 224, 224)}}',
                )
            return TensorType(self.dimensions.declared(name, kind), dtype)
        shape = self.dimensions.override(name, override)
        if has_shape and len(kind.tensor_type.shape.dim) != len(shape):
            raise InvalidInputError(
                f"the shape given for input {name!r} has the wrong rank",
                where=where,
                expected=f"{len(kind.tensor_type.shape.dim)} dimensions",
                got=str(tuple(override)),
            )
        return TensorType(shape, dtype)


Declared = tuple[tuple[str, TensorType], ...]


def declared_signature(
    model: str | os.PathLike[str] | bytes | Any, inputs: Mapping[str, Sequence[object]]
) -> tuple[Declared, Declared]:
    """Return the name and type of every input and output; ``inputs`` overrides shapes.

    Sizes that are neither integers nor names become ``ANY``, and bounds are left out. Raises
    ``InvalidModelError`` for a model that cannot be read, ``UnsupportedModelError`` for unsupported
    element types and for values that are not tensors.
    """
    graph = load_model(model).proto.graph
    constants = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in constants]
    types = tuple(_type_of(v, inputs.get(v.name)) for v in given)
    sizes = Dimensions.of("the model", given, inputs, {}).given
    return (tuple((v.name, _with_sizes(t, sizes)) for v, t in zip(given, types, strict=True)),
            tuple((v.name, _type_of(v, None)) for v in graph.output))


def _type_of(value: ValueInfoProto, shape: Sequence[object] | None) -> TensorType:
    if value.type.WhichOneof("value") != "tensor_type":
        raise UnsupportedModelError(f"graph value {value.name!r} is not a tensor", where=value.name)
    tensor = value.type.tensor_type
    dtype = dtype_of(tensor.elem_type, f"graph value {value.name!r}", value.name)
    dims = as_shape(shape) if shape is not None else tuple(map(_dim_of, tensor.shape.dim))
    return TensorType(dims, dtype)


def _dim_of(dim: Any) -> Dim:
    if dim.WhichOneof("value") == "dim_value":
        return int(dim.dim_value)
    return as_shape((dim.dim_param,))[0] if dim.dim_param.isidentifier() else ANY


def _with_sizes(type_: TensorType, sizes: Mapping[str, Dim]) -> TensorType:
    """``type_`` with the sizes that the user gives for names, and symbols without their ranges."""
    dims = [substitute_dim(dim, sizes) for dim in type_.shape]
    texts = {t for d in dims if isinstance(d, SymDim) for t in d.symbols()}
    names: dict[str, Dim] = {t: SymDim.symbol(name_of(t)) for t in texts}
    return TensorType(tuple(substitute_dim(dim, names) for dim in dims), type_.dtype)
