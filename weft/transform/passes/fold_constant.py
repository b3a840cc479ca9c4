"""Constant folding by the operators' NumPy references.

A weight is often transposed when it is imported, and packed for its kernel later. As views these
steps cost nothing; the weight is copied once, into the memory of the program.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from weft import ir
from weft.ir import Call, has_symbols
from weft.ir.deferred import Array, Deferred, Joined, defers
from weft.support.allocation import BUDGET_BYTES, AllocationBudget
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout, transform_steps
from weft.transform.analysis.graph import is_constant, known_type, op_name, rewrite_function
from weft.transform.analysis.reference import evaluate_call


def constant_view(call: Call, array: Array) -> Array | None:
    """The result of ``call`` on ``array`` as a view of it; ``None`` if it needs a computation.

    If the elements have no regular order in ``array``, the result is a view of a copy. Rows that
    padding appends to a large array are joined to it.
    """
    view = _VIEWS.get(op_name(call))
    return None if view is None else view(array, dict(call.attrs.items()))


def _transposed(array: Array, attrs: Mapping[str, Any]) -> Array:
    return array.transpose(attrs["axes"])


def _relaid(array: Array, attrs: Mapping[str, Any]) -> Array:
    src, dst = Layout.parse(attrs["src_layout"]), Layout.parse(attrs["dst_layout"])
    for kind, argument in transform_steps(src, dst, array.shape):
        array = array.reshape(argument) if kind == "reshape" else array.transpose(argument)
    return array


_VIEWS: dict[str, Callable[[Array, Mapping[str, Any]], Array]] = {
    "transpose": _transposed,
    "layout_transform": _relaid,
}


@ir.register_pass
@dataclass(frozen=True)
class FoldConstant(ir.FunctionPass):
    """Evaluate operator calls whose arguments are all constant, and decide constant branches.

    A result of more than ``max_bytes`` is folded in two cases: it is at most ``max_growth`` times
    as large as the arguments (a kernel that reads a broadcast weight should broadcast it itself),
    or it comes from a creation operator and has at most ``max_created`` bytes, because models may
    store weights that way. All results together may have ``weft.support.allocation.BUDGET_BYTES``
    plus ``max_growth`` times the bytes of the constants of the function. ``skip`` names operators
    whose calls stay; calls of operators with an effect stay too.

    def @main(%x: Tensor[(2,), float32]) { add(%x, add(1f, 2f)) }
    =>
    def @main(%x: Tensor[(2,), float32]) { add(%x, 3f) }
    """

    name: ClassVar[str] = "fold_constant"
    opt_level: ClassVar[int] = 1
    max_bytes: int = 1 << 20
    max_growth: int = 4
    max_created: int = 64 << 20
    skip: tuple[str, ...] = ()

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        @functools.cache
        def budget() -> AllocationBudget:
            given = sum(e.content.nbytes for e in ir.post_order(fn) if isinstance(e, ir.Constant))
            return AllocationBudget(BUDGET_BYTES + self.max_growth * given)

        return rewrite_function(fn, partial(self._fold, budget), (ir.Call, ir.TupleGetItem, ir.If))

    def _fold(self, budget: Callable[[], AllocationBudget], original: ir.Expr, node: ir.Expr
              ) -> ir.Expr:
        if isinstance(node, ir.TupleGetItem) and isinstance(node.tuple_value, ir.Tuple):
            return node.tuple_value.fields[node.index]
        if isinstance(node, ir.If) and isinstance(node.cond, ir.Constant):
            return node.true_branch if node.cond.data.item() else node.false_branch
        if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Op):
            return node
        if not all(map(is_constant, node.args)):  # true of most calls
            return node
        if node.op.reference is None or node.op.traits.has_effect or node.op.name in self.skip:
            return node
        if has_symbols(node.attrs):  # such as arange(start=n, stop=n + 1), of static type
            return node
        type_ = known_type(original) or ir.infer_expr(node).checked_type
        return evaluate_constant(node, type_) if self._folds(node, type_, budget()) else node

    def _folds(self, call: ir.Call, type_: ir.Type | None, budget: AllocationBudget) -> bool:
        if type_ is None or not ir.is_static(type_):
            return False
        is_creation = isinstance(call.op, ir.Op) and call.op.traits.is_creation
        largest = self.max_created if is_creation else max(
            self.max_bytes, self.max_growth * sum(_bytes_of_constant(a) for a in call.args))
        size = bytes_of(type_)
        return size <= largest and budget.grants(size)


def evaluate_constant(call: ir.Call, type_: ir.Type | None = None) -> ir.Expr:
    """The constant (or tuple of constants) that a call on constants evaluates to."""
    first = call.args[0] if call.args else None
    if isinstance(first, ir.Constant):
        view = constant_view(call, first.content) if len(call.args) == 1 else None
        view = _with_rows(call, first) if op_name(call) == "nn.pad" else view
        if view is not None:
            return _constant(view, type_, call)
    values = evaluate_call(call, [_value_of(a) for a in call.args])
    if isinstance(values, tuple):
        types: Sequence[ir.Type | None] = (
            type_.fields if isinstance(type_, ir.TupleType) else [None] * len(values)
        )
        fields = [_constant(v, t, call) for v, t in zip(values, types, strict=True)]
        return ir.Tuple(tuple(fields), span=call.span, checked_type=type_)
    return _constant(values, type_, call)


def _with_rows(call: Call, constant: ir.Constant) -> Array | None:
    """A large constant with one value in rows that are appended; ``None`` for other padding."""
    data, attrs = constant.content, dict(call.attrs.items())
    if not defers(data) or isinstance(data, Deferred) or attrs["pad_mode"] != "constant":
        return None
    (before, after), *others = attrs["pad_width"]
    if before or after < 1 or any(map(any, others)):
        return None
    value = _value_of(call.args[1]).item()
    return Joined(data, np.full((after, *data.shape[1:]), value, data.dtype))


def _constant(value: Any, type_: ir.Type | None, call: ir.Call) -> ir.Constant:
    if isinstance(value, Deferred):
        return ir.Constant(value, span=call.span)  # type: ignore[arg-type]
    dtype = type_.dtype.numpy if isinstance(type_, ir.TensorType) else None
    return ir.Constant(np.asarray(value, dtype), span=call.span)


def _value_of(expr: ir.Expr) -> Any:
    if isinstance(expr, ir.Tuple):
        return tuple(map(_value_of, expr.fields))
    return expr.data  # type: ignore[attr-defined] - is_constant said so


def bytes_of(type_: ir.Type) -> int:
    """The bytes of the tensors of a type of fixed sizes."""
    if isinstance(type_, ir.TupleType):
        return sum(map(bytes_of, type_.fields))
    if not isinstance(type_, ir.TensorType):
        return 0
    return math.prod(type_.concrete_shape) * type_.dtype.itemsize


def _bytes_of_constant(expr: ir.Expr) -> int:
    if isinstance(expr, ir.Tuple):
        return sum(map(_bytes_of_constant, expr.fields))
    return expr.content.nbytes  # type: ignore[attr-defined] - is_constant said so
