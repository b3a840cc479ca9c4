"""Constant folding by the operators' NumPy references."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from weft.ir.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.substitution import has_symbols
from weft.ir.types import TensorType, TupleType, Type, is_static
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.allocation import BUDGET_BYTES, AllocationBudget
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import is_constant, known_type, rewrite_function
from weft.transform.analysis.reference import evaluate_call
from weft.transform.passes.constant_views import constant_view


@register_pass
@dataclass(frozen=True)
class FoldConstant(FunctionPass):
    """Evaluate operator calls whose arguments are all constant, and decide constant branches.

    A result of more than ``max_bytes`` is folded only if it is at most ``max_growth`` times as
    large as the arguments (the kernel that reads a broadcast weight had better broadcast it), or
    if it comes from a creation operator and has at most ``max_created`` bytes, because models may
    store weights that way. The results together may have ``weft.support.allocation.BUDGET_BYTES``
    and ``max_growth`` times the bytes of the constants that the function has. ``skip`` names
    operators whose calls stay; so do calls of operators with an effect.

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

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        given = sum(e.data.nbytes for e in post_order(fn) if isinstance(e, Constant))
        budget = AllocationBudget(BUDGET_BYTES + self.max_growth * given)
        return rewrite_function(fn, partial(self._fold, budget))

    def _fold(self, budget: AllocationBudget, original: Expr, node: Expr) -> Expr:
        if isinstance(node, TupleGetItem) and isinstance(node.tuple_value, Tuple):
            return node.tuple_value.fields[node.index]
        if isinstance(node, If) and isinstance(node.cond, Constant):
            return node.true_branch if node.cond.data.item() else node.false_branch
        if not isinstance(node, Call) or not isinstance(node.op, Op):
            return node
        if node.op.reference is None or node.op.traits.has_effect or node.op.name in self.skip:
            return node
        if not all(map(is_constant, node.args)):
            return node
        if has_symbols(node.attrs):  # such as arange(start=n, stop=n + 1), of static type
            return node
        type_ = known_type(original) or infer_expr(node).checked_type
        return evaluate_constant(node, type_) if self._folds(node, type_, budget) else node

    def _folds(self, call: Call, type_: Type | None, budget: AllocationBudget) -> bool:
        if type_ is None or not is_static(type_):
            return False
        is_creation = isinstance(call.op, Op) and call.op.traits.is_creation
        largest = self.max_created if is_creation else max(
            self.max_bytes, self.max_growth * sum(_bytes_of_constant(a) for a in call.args))
        size = bytes_of(type_)
        return size <= largest and budget.grants(size)


def evaluate_constant(call: Call, type_: Type | None = None) -> Expr:
    """The constant (or tuple of constants) that a call on constants evaluates to."""
    if len(call.args) == 1 and isinstance(call.args[0], Constant):
        view = constant_view(call, call.args[0].data)
        if view is not None:
            return _constant(view, type_, call)
    values = evaluate_call(call, [_value_of(a) for a in call.args])
    if isinstance(values, tuple):
        types: Sequence[Type | None] = (
            type_.fields if isinstance(type_, TupleType) else [None] * len(values)
        )
        fields = [_constant(v, t, call) for v, t in zip(values, types, strict=True)]
        return Tuple(tuple(fields), span=call.span, checked_type=type_)
    return _constant(values, type_, call)


def _constant(value: Any, type_: Type | None, call: Call) -> Constant:
    dtype = type_.dtype.numpy if isinstance(type_, TensorType) else None
    return Constant(np.asarray(value, dtype), span=call.span)


def _value_of(expr: Expr) -> Any:
    if isinstance(expr, Tuple):
        return tuple(map(_value_of, expr.fields))
    return expr.data  # type: ignore[attr-defined] - is_constant said so


def bytes_of(type_: Type) -> int:
    """The bytes of the tensors of a type of fixed sizes."""
    if isinstance(type_, TupleType):
        return sum(map(bytes_of, type_.fields))
    if not isinstance(type_, TensorType):
        return 0
    return math.prod(type_.concrete_shape) * type_.dtype.itemsize


def _bytes_of_constant(expr: Expr) -> int:
    if isinstance(expr, Tuple):
        return sum(map(_bytes_of_constant, expr.fields))
    return expr.data.nbytes  # type: ignore[attr-defined] - is_constant said so
