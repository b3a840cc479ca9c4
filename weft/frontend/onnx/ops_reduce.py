"""Converters of reductions."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import ConvertFunction, register
from weft.ir.expr import Expr
from weft.ir.op import Op

# The opset in which the axes moved from an attribute to an input.
_AXES_ARE_INPUT_SINCE = {
    "ReduceMax": 18,
    "ReduceMean": 18,
    "ReduceMin": 18,
    "ReduceProd": 18,
    "ReduceSum": 13,
}
_OPERATORS = {
    "ReduceMax": op.max,
    "ReduceMean": op.mean,
    "ReduceMin": op.min,
    "ReduceProd": op.prod,
    "ReduceSum": op.sum,
}
_SEARCHES = {"ArgMax": op.argmax, "ArgMin": op.argmin}


def _axes_by_attribute(operator: Op) -> ConvertFunction:
    return lambda node: _reduce(node, operator, node.attrs.integers("axes"))


def _axes_by_input(operator: Op) -> ConvertFunction:
    def convert(node: Node) -> Expr:
        axes = node.optional_ints(1, "axes")
        if not axes and node.attrs.flag("noop_with_empty_axes"):
            return node.input(0)
        return _reduce(node, operator, axes)

    return convert


def _reduce(node: Node, operator: Op, axes: tuple[int, ...] | None) -> Expr:
    rank = node.rank()
    chosen = tuple(sorted(node.axis(a, rank) for a in axes)) if axes else None
    if chosen is not None and len(set(chosen)) < len(chosen):
        raise node.fail("an axis is named twice", got=str(axes))
    keepdims = node.attrs.flag("keepdims", True)
    return node.call(operator, node.input(0), axis=chosen, keepdims=keepdims)


def _search(operator: Op) -> ConvertFunction:
    def convert(node: Node) -> Expr:
        axis = node.axis(node.attrs.integer("axis", 0), node.rank())
        return node.call(
            operator,
            node.input(0),
            axis=(axis,),
            keepdims=node.attrs.flag("keepdims", True),
            select_last_index=node.attrs.flag("select_last_index"),
        )

    return convert


for _name, _operator in _OPERATORS.items():
    register(_name, _axes_by_attribute(_operator), attributes=("axes", "keepdims"))
    register(
        _name,
        _axes_by_input(_operator),
        since=_AXES_ARE_INPUT_SINCE[_name],
        attributes=("keepdims", "noop_with_empty_axes"),
    )
for _name, _operator in _SEARCHES.items():
    register(_name, _search(_operator), attributes=("axis", "keepdims", "select_last_index"))
