"""Kernels on narrow floats compute in float32 and round once, when they store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from weft import ir, op
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import (
    as_function,
    is_primitive,
    known_type,
    op_name,
    traits_of,
)


@ir.register_pass
@dataclass(frozen=True)
class ComputeInFloat32(ir.FunctionPass):
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
    seeks: ClassVar[ir.Seeks] = ir.Seeks(dtype=lambda dtype: dtype.is_narrow_float)

    def run(self, fn: ir.Function, ctx: ir.PassContext) -> ir.Function:  # noqa: ARG002
        new: dict[ir.Expr, ir.Expr] = {}
        for node in ir.post_order(fn, enter=lambda e: not is_primitive(e)):
            if is_primitive(node):
                new[node] = _rewritten(node)
                continue
            new[node] = ir.replace_children(node, [new[c] for c in ir.children(node)])
        return as_function(new[fn])


def _rewritten(function: ir.Expr) -> ir.Expr:
    """The primitive function rewritten; itself if it computes nothing on narrow floats."""
    if not isinstance(function, ir.Function):
        return function
    nodes = list(ir.post_order(function.body))
    if not any(isinstance(n, ir.Call) and _is_lifted(n) for n in nodes):
        return function
    body = _Kernel(function.body).rewrite(nodes)
    return function.replace(body=body, checked_type=function.checked_type)


class _Kernel:
    """One primitive function: each node in its declared type, and in float32 if computed in it."""

    def __init__(self, result: ir.Expr) -> None:
        self.result = result
        self.narrow: dict[ir.Expr, ir.Expr] = {}
        self.wide: dict[ir.Expr, ir.Expr] = {}

    def rewrite(self, nodes: Sequence[ir.Expr]) -> ir.Expr:
        """Rewrite the body of the function; ``nodes`` are in post-order."""
        for node in nodes:
            if not self._lift(node):
                self.narrow[node] = self._as_written(node)
        return self._rounded(self.result)

    def _lift(self, node: ir.Expr) -> bool:
        """Compute ``node`` in float32 if it should be; return whether it was."""
        if not isinstance(node, ir.Call) or _narrow_type(node) is None:
            return False
        if _rounds_sums(node):
            self.wide[node] = self._rounded(node.args[0])
            return True
        if node is not self.result and _accumulates(node):
            args = tuple(map(self._rounded, node.args))
            self.wide[node] = ir.infer_expr(node.replace(
                args=args, attrs=node.attrs.replace(out_dtype=ir.float32), checked_type=None),
                trust=True)
            return True
        if not _is_lifted(node) and not (_moves(node) and self._arrives_wide(node)):
            return False
        args = tuple(map(self._upcast, node.args))
        attrs = node.attrs
        if getattr(attrs, "out_dtype", None) is not None:
            attrs = attrs.replace(out_dtype=None)
        lifted = ir.infer_expr(node.replace(args=args, attrs=attrs, checked_type=None), trust=True)
        self.wide[node] = lifted
        return True

    def _arrives_wide(self, call: ir.Call) -> bool:
        """Whether an operand is computed in float32."""
        return any(part in self.wide for arg in call.args for part in _parts(arg))

    def _upcast(self, expr: ir.Expr) -> ir.Expr:
        """An operand with its narrow floats upcast to float32."""
        if isinstance(expr, ir.Tuple):
            return ir.infer_expr(ir.Tuple(tuple(map(self._upcast, expr.fields))), trust=True)
        if expr in self.wide:
            return self.wide[expr]
        type_ = _narrow_type(expr)
        if type_ is None:
            return self._rounded(expr)
        if isinstance(expr, ir.Constant):
            self.wide[expr] = ir.Constant(expr.data.astype(np.float32), span=expr.span)
        else:
            self.wide[expr] = _cast(self.narrow[expr], ir.float32)
        return self.wide[expr]

    def _rounded(self, expr: ir.Expr) -> ir.Expr:
        """A value rounded to the type that the program declares."""
        if expr not in self.narrow:
            type_ = _narrow_type(expr)
            self.narrow[expr] = _cast(self.wide[expr], type_.dtype if type_ else ir.float32)
        return self.narrow[expr]

    def _as_written(self, node: ir.Expr) -> ir.Expr:
        return ir.replace_children(node, [self._rounded(c) for c in ir.children(node)])


def _is_lifted(call: ir.Call) -> bool:
    """Whether a call is to be computed in float32 and no operand is wider than its result."""
    if traits_of(call).narrow_floats is not ir.NarrowFloatCompute.FLOAT32:
        return False
    result = _narrow_type(call)
    operands = [known_type(part) for arg in call.args for part in _parts(arg)]
    return result is not None and all(_is_at_most(t, result.dtype) for t in operands)


def _rounds_sums(call: ir.Call) -> bool:
    """Whether a call rounds the float32 result of a contraction of its kernel."""
    if op_name(call) != "cast":
        return False
    source = call.args[0]
    type_ = known_type(source)
    is_single = isinstance(type_, ir.TensorType) and type_.dtype == ir.float32
    return is_single and traits_of(source).is_contraction


def _is_at_most(type_: ir.Type | None, dtype: ir.DType) -> bool:
    """Whether a tensor type has ``dtype``, or no floats."""
    return isinstance(type_, ir.TensorType) and (type_.dtype == dtype or not type_.dtype.is_float)


def _moves(call: ir.Call) -> bool:
    if not isinstance(call.op, ir.Op):
        return False
    return call.op.pattern is ir.OpPattern.INJECTIVE or call.op.traits.copies_elements


def _accumulates(call: ir.Call) -> bool:
    return traits_of(call).narrow_floats is ir.NarrowFloatCompute.ACCUMULATOR


def _parts(expr: ir.Expr) -> Sequence[ir.Expr]:
    return expr.fields if isinstance(expr, ir.Tuple) else (expr,)


def _narrow_type(expr: ir.Expr) -> ir.TensorType | None:
    """The type, if it is a tensor of floats of at most 16 bits."""
    type_ = known_type(expr)
    if not isinstance(type_, ir.TensorType):
        return None
    return type_ if type_.dtype.is_narrow_float else None


def _cast(expr: ir.Expr, dtype: ir.DType) -> ir.Expr:
    return ir.infer_expr(op.cast(expr, dtype=dtype, span=expr.span), trust=True)
