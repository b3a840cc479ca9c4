"""Converters of norms, sums of squares and logarithms of sums, composed of simpler reductions.

From opset 18 on, ONNX defines these operators by equivalent function bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.ops.reduce import reduced_axes
from weft.frontend.onnx.registry import ConvertFunction, converts, register
from weft.ir import Expr, Op
from weft.op.composites import norms

Part = Callable[[Node, Expr], Expr]


def _itself(_: Node, x: Expr) -> Expr:
    return x


def _magnitude(node: Node, x: Expr) -> Expr:
    return node.call(op.abs, x)


def _square(node: Node, x: Expr) -> Expr:
    return node.call(op.multiply, x, x)


def _root(node: Node, x: Expr) -> Expr:
    return _in_floats(node, op.sqrt, x)


def _logarithm(node: Node, x: Expr) -> Expr:
    return _in_floats(node, op.log, x)


def _in_floats(node: Node, function: Op, x: Expr) -> Expr:
    """Apply ``function``; integers are computed in float64 and cast back."""
    if not node.dtype().is_int:
        return node.call(function, x)
    result = node.call(function, node.call(op.cast, x, dtype="float64"))
    return node.call(op.cast, result, dtype=str(node.dtype()))


# The functions applied to the elements before the sum and to the sum.
_SUMS: dict[str, tuple[Part, Part]] = {
    "ReduceL1": (_magnitude, _itself),
    "ReduceL2": (_square, _root),
    "ReduceLogSum": (_itself, _logarithm),
    "ReduceSumSquare": (_square, _itself),
}


def _sum_of(before: Part, after: Part) -> Callable[[Node, tuple[int, ...] | None], Expr]:
    def convert(node: Node, axes: tuple[int, ...] | None) -> Expr:
        total = node.call(op.sum, before(node, node.input(0)), axis=reduced_axes(node, axes),
                          keepdims=node.attrs.flag("keepdims", True))
        return after(node, total)

    return convert


def _log_sum_exp(node: Node, named: tuple[int, ...] | None) -> Expr:
    """log(sum(exp(x))); integers are computed in float64."""
    x, axes, keepdims = node.input(0), reduced_axes(node, named), node.attrs.flag("keepdims", True)
    if node.dtype().is_int:
        wide = replace(node, inputs=(node.call(op.cast, x, dtype="float64"), *node.inputs[1:]))
        return node.call(op.cast, _log_sum_exp(wide, named), dtype=node.dtype().name)
    if any(node.shape()[a] == 0 for a in axes or range(node.rank())):  # no maximum exists
        nothing = node.call(op.sum, x, axis=axes, keepdims=keepdims)
        return node.call(op.log, nothing)
    result = node.composed(norms.logsumexp, x, axes)
    if keepdims:
        return result
    return node.call(op.squeeze, result, axis=axes or tuple(range(node.rank())))


def _by_attribute(reduce: Callable[[Node, tuple[int, ...] | None], Expr]) -> ConvertFunction:
    return lambda node: reduce(node, node.attrs.integers("axes"))


def _by_input(reduce: Callable[[Node, tuple[int, ...] | None], Expr],
              elementwise: Part) -> ConvertFunction:
    def convert(node: Node) -> Expr:
        axes = node.optional_ints(1, "axes")
        if not axes and node.attrs.flag("noop_with_empty_axes"):
            return elementwise(node, node.input(0))
        return reduce(node, axes)

    return convert


def _register(name: str, reduce: Callable[[Node, tuple[int, ...] | None], Expr],
              elementwise: Part) -> None:
    register(name, _by_attribute(reduce), attributes=("axes", "keepdims"))
    register(name, _by_input(reduce, elementwise), since=18,
             attributes=("keepdims", "noop_with_empty_axes"))


for _name, (_before, _after) in _SUMS.items():
    _register(_name, _sum_of(_before, _after),
              lambda node, x, before=_before, after=_after: after(node, before(node, x)))
_register("ReduceLogSumExp", _log_sum_exp, _itself)


@converts("GlobalLpPool", attributes=("p",))
def global_lp_pool(node: Node) -> Expr:
    """Compute the p-norm of every channel: sum(|x|**p)**(1 / p) over the spatial axes."""
    order = node.attrs.integer("p", 2)
    if order < 1:
        raise node.fail("invalid value of p", expected="1 or more", got=str(order))
    axes = tuple(range(2, node.rank()))
    return node.composed(norms.p_norm, node.input(0), order, axes, keepdims=True)
