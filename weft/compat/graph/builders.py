"""Constructors of nodes: inputs as tensors, attributes as operator records define them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compat.graph.node import OwnerGraph, Tensor
from weft.compat.graphdef.catalogue import OPERANDS, TENSOR
from weft.compat.graphdef.definitions import ShapeAttr
from weft.compat.graphdef.state import ASSIGNMENTS, INITIAL_VALUE, VARIABLES
from weft.ir import OPS, DType, Op, Span, as_dim, const
from weft.support.errors import AttrsError, InvalidModelError


def placeholder(graph: OwnerGraph, shape: Sequence[object], dtype: DType | str, name: str
                ) -> Tensor:
    """See ``Graph.placeholder``."""
    dims = tuple(None if size is None else as_dim(size) for size in shape)
    attrs = {"dtype": DType.of(dtype), "shape": ShapeAttr(dims)}  # type: ignore[arg-type]
    return Tensor(graph.create("Placeholder", name=name, attrs=attrs), 0)


def constant(graph: OwnerGraph, value: Any, dtype: DType | str | None, name: str) -> Tensor:
    """See ``Graph.constant``."""
    data = const(value, dtype).data
    attrs = {"dtype": DType.of(data.dtype), "value": data}
    return Tensor(graph.create("Const", name=name, attrs=attrs), 0)


def variable(graph: OwnerGraph, initial: Any, dtype: DType | str | None, name: str) -> Tensor:
    """See ``Graph.variable``."""
    data = const(initial, dtype).data
    attrs = {"dtype": DType.of(data.dtype), "shape": ShapeAttr(tuple(data.shape)),
             INITIAL_VALUE: data}
    return Tensor(graph.create("VariableV2", name=name, attrs=attrs), 0)


def assign(graph: OwnerGraph, op: str, target: Tensor, value: Any, name: str) -> Tensor:
    """See ``Graph.assign``."""
    node = target.node
    while node.op in ASSIGNMENTS:  # assignments, which return a reference to the variable
        node = node.inputs[0].node
    if node.op not in VARIABLES:
        raise InvalidModelError("only variables can be assigned", where=Span.of_caller(),
                                got=str(target))
    new = value if isinstance(value, Tensor) else constant(graph, value, target.dtype, "Const")
    return Tensor(graph.create(op, [target, new], name=name), 0)


def call(graph: OwnerGraph, op: str, inputs: Sequence[Any], attrs: Mapping[str, Any],
         name: str | None) -> Tensor | tuple[Tensor, ...]:
    """See ``Graph.call``."""
    record = OPS.find(op)
    values = {n: v for n, v in attrs.items() if v is not None} if record is None \
        else _checked(record, attrs, len(inputs))
    nodes_before = graph.num_node_ids
    operands, sizes = _operands(graph, record, inputs)
    if sizes:
        values[OPERANDS] = sizes
    try:
        node = graph.create(op, operands, name=name, attrs=values)
    except Exception:
        for made in [n for n in graph.op_nodes if n.id >= nodes_before]:  # constants of this call
            graph.remove_node(made)
        raise
    results = node.outputs
    return results[0] if len(results) == 1 else results


def _checked(op: Op, attrs: Mapping[str, Any], count: int) -> dict[str, Any]:
    """The attributes, converted by their record, without those that equal their default."""
    if count != len(op.inputs):
        raise AttrsError(f"{op.name} takes {len(op.inputs)} arguments", got=str(count),
                         expected=", ".join(op.inputs), where=Span.of_caller())
    try:
        return dict(op.attrs_type.make(dict(attrs)).non_default_items())
    except AttrsError as error:
        raise error.at(str(Span.of_caller())) from None


def _operands(graph: OwnerGraph, op: Op | None, inputs: Sequence[Any]
              ) -> tuple[list[Tensor], tuple[int, ...]]:
    """The tensors of all operands, and the sizes of operands if one is a tuple."""
    like = None if op is None else next((x for x in inputs if isinstance(x, Tensor)), None)
    found: list[Tensor] = []
    sizes: list[int] = []
    for value in inputs:
        if isinstance(value, (tuple, list)) and any(isinstance(v, Tensor) for v in value):
            first = next(v for v in value if isinstance(v, Tensor))
            found.extend(_tensor(graph, v, first) for v in value)
            sizes.append(len(value))
        else:
            found.append(_tensor(graph, value, like))
            sizes.append(TENSOR)
    variadic = op is not None and len(op.inputs) == 1 and op.inputs[0].startswith("*")
    if variadic and sizes == [TENSOR]:
        raise InvalidModelError(f"{op.name} takes a sequence of tensors" if op else "",
                                where=Span.of_caller(), got="one tensor")
    is_grouped = op is not None and not variadic and any(size != TENSOR for size in sizes)
    return found, tuple(sizes) if is_grouped else ()


def _tensor(graph: OwnerGraph, value: Any, like: Tensor | None) -> Tensor:
    """``value``, or a constant; a Python number takes the element type of ``like``."""
    if isinstance(value, Tensor):
        return value
    is_number = isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)
    dtype = like.dtype if is_number and like is not None else None
    if is_number and dtype is not None and isinstance(value, float) and not dtype.is_float:
        dtype = None
    return constant(graph, value, dtype, "Const")
