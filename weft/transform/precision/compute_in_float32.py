"""Kernels on narrow floats compute in float32 and round once, when they store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from weft import op
from weft.ir.dtype import DType, float32
from weft.ir.expr import Call, Constant, Expr, Function, Tuple
from weft.ir.op import Op, OpPattern
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.traits import NarrowFloatCompute
from weft.ir.types import TensorType, Type
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import children, post_order, replace_children
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import (
    as_function,
    is_primitive,
    known_type,
    op_name,
    traits_of,
)


@register_pass
@dataclass(frozen=True)
class ComputeInFloat32(FunctionPass):
    """Compute in float32 inside kernels whose tensors are stored in 16 bits or fewer.

    Narrow floats are storage formats: a kernel upcasts what it loads and rounds what it stores.
    Between the operators of one kernel nothing is rounded, except before operators that compare,
    round or convert. Sums and means always accumulate in float32. Matrix multiplications take
    their operands as stored. The trait ``narrow_floats`` of each operator decides.

    def @main(%x: Tensor[(4,), float16]) {
      %1 = fn (%p0: Tensor[(4,), float16], primitive=True) -> Tensor[(4,), float16] {
        exp(negative(%p0))
      };
      %1(%x)
    }
    =>
    def @main(%x: Tensor[(4,), float16]) {
      %1 = fn (%p0: Tensor[(4,), float16], primitive=True) -> Tensor[(4,), float16] {
        cast(exp(negative(cast(%p0, dtype="float32"))), dtype="float16")
      };
      %1(%x)
    }
    """

    name: ClassVar[str] = "compute_in_float32"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        new: dict[Expr, Expr] = {}
        for node in post_order(fn, enter=lambda e: not is_primitive(e)):
            if is_primitive(node):
                new[node] = _rewritten(node)
                continue
            new[node] = replace_children(node, [new[c] for c in children(node)])
        return as_function(new[fn])


def _rewritten(function: Expr) -> Expr:
    """The primitive function rewritten; itself if it computes nothing on narrow floats."""
    if not isinstance(function, Function):
        return function
    nodes = list(post_order(function.body))
    if not any(isinstance(n, Call) and _is_lifted(n) for n in nodes):
        return function
    body = _Kernel(function.body).rewrite(nodes)
    return function.replace(body=body, checked_type=function.checked_type)


class _Kernel:
    """One primitive function: each node in its own type, and in float32 where computed so."""

    def __init__(self, result: Expr) -> None:
        self.result = result
        self.narrow: dict[Expr, Expr] = {}
        self.wide: dict[Expr, Expr] = {}

    def rewrite(self, nodes: Sequence[Expr]) -> Expr:
        """Rewrite the body of the function; ``nodes`` are in post-order."""
        for node in nodes:
            if not self._lift(node):
                self.narrow[node] = self._as_written(node)
        return self._rounded(self.result)

    def _lift(self, node: Expr) -> bool:
        """Compute ``node`` in float32 if it should be; return whether it was."""
        if not isinstance(node, Call) or _narrow_type(node) is None:
            return False
        if _rounds_sums(node):
            self.wide[node] = self._rounded(node.args[0])
            return True
        if node is not self.result and _accumulates(node):
            args = tuple(map(self._rounded, node.args))
            self.wide[node] = infer_expr(node.replace(
                args=args, attrs=node.attrs.replace(out_dtype=float32), checked_type=None),
                trust=True)
            return True
        if not _is_lifted(node) and not (_moves(node) and self._arrives_wide(node)):
            return False
        args = tuple(map(self._upcast, node.args))
        attrs = node.attrs
        if getattr(attrs, "out_dtype", None) is not None:
            attrs = attrs.replace(out_dtype=None)
        lifted = infer_expr(node.replace(args=args, attrs=attrs, checked_type=None), trust=True)
        self.wide[node] = lifted
        return True

    def _arrives_wide(self, call: Call) -> bool:
        """Whether an operand is computed in float32."""
        return any(part in self.wide for arg in call.args for part in _parts(arg))

    def _upcast(self, expr: Expr) -> Expr:
        """An operand with its narrow floats upcast to float32."""
        if isinstance(expr, Tuple):
            return infer_expr(Tuple(tuple(map(self._upcast, expr.fields))), trust=True)
        if expr in self.wide:
            return self.wide[expr]
        type_ = _narrow_type(expr)
        if type_ is None:
            return self._rounded(expr)
        if isinstance(expr, Constant):
            self.wide[expr] = Constant(expr.data.astype(np.float32), span=expr.span)
        else:
            self.wide[expr] = _cast(self.narrow[expr], float32)
        return self.wide[expr]

    def _rounded(self, expr: Expr) -> Expr:
        """A value rounded to the type that the program declares."""
        if expr not in self.narrow:
            type_ = _narrow_type(expr)
            self.narrow[expr] = _cast(self.wide[expr], type_.dtype if type_ else float32)
        return self.narrow[expr]

    def _as_written(self, node: Expr) -> Expr:
        return replace_children(node, [self._rounded(c) for c in children(node)])


def _is_lifted(call: Call) -> bool:
    """Whether a call is to be computed in float32 and no operand is wider than its result."""
    if traits_of(call).narrow_floats is not NarrowFloatCompute.FLOAT32:
        return False
    result = _narrow_type(call)
    operands = [known_type(part) for arg in call.args for part in _parts(arg)]
    return result is not None and all(_is_at_most(t, result.dtype) for t in operands)


def _rounds_sums(call: Call) -> bool:
    """Whether a call rounds the float32 result of a contraction of its kernel."""
    if op_name(call) != "cast":
        return False
    source = call.args[0]
    type_ = known_type(source)
    is_single = isinstance(type_, TensorType) and type_.dtype == float32
    return is_single and traits_of(source).is_contraction


def _is_at_most(type_: Type | None, dtype: DType) -> bool:
    """Whether a tensor type has ``dtype``, or no floats."""
    return isinstance(type_, TensorType) and (type_.dtype == dtype or not type_.dtype.is_float)


def _moves(call: Call) -> bool:
    if not isinstance(call.op, Op):
        return False
    return call.op.pattern is OpPattern.INJECTIVE or call.op.traits.copies_elements


def _accumulates(call: Call) -> bool:
    return traits_of(call).narrow_floats is NarrowFloatCompute.ACCUMULATOR


def _parts(expr: Expr) -> Sequence[Expr]:
    return expr.fields if isinstance(expr, Tuple) else (expr,)


def _narrow_type(expr: Expr) -> TensorType | None:
    """The type, if it is a tensor of floats of at most 16 bits."""
    type_ = known_type(expr)
    if not isinstance(type_, TensorType):
        return None
    return type_ if type_.dtype.is_narrow_float else None


def _cast(expr: Expr, dtype: DType) -> Expr:
    return infer_expr(op.cast(expr, dtype=dtype, span=expr.span), trust=True)
