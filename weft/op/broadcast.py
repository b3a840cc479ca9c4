"""Elementwise functions of several tensors under NumPy broadcasting."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import AnyDim, Attrs, Call, Dim, Expr, KnownDim, TensorType, attr, sizes_from
from weft.ir.op import GradientRule, OpPattern, define_op, op_case
from weft.ir.traits import (
    COMMUTATIVE,
    CONTINUOUS,
    SENSITIVE,
    ZERO_GRADIENT,
    Commutativity,
    OpTraits,
    linear,
    multilinear,
)
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import broadcast_dims, broadcast_shapes
from weft.op.batching import aligned, with_attrs
from weft.op.families import BINARY_CASES, binary, comparison, float_arithmetic, logical
from weft.op.gradients import (
    attrs_of,
    broadcast_gradients,
    scalar,
    sum_to,
    tensor_type,
    typed_zeros,
)
from weft.op.layout_inference import join_layouts
from weft.op.numpy_functions import truncated_divide, truncated_quotient
from weft.support.dataclass import dataclass
from weft.tir.expr import EQ, GE, GT, LE, LT, NE, PrimExpr, all_of, any_of, call
from weft.tir.expr import compare as prim_compare
from weft.tir.expr import maximum as prim_maximum
from weft.tir.expr import minimum as prim_minimum
from weft.topi import broadcast
from weft.topi.sizes import as_sizes

_INT = (op_case((3, 4), (4,), dtypes="int32", low=-9, high=9),)
_DIVISORS = np.array([3, -2, 7, -5], np.int32)
_INT_DIVISION = (op_case((3, 4), _DIVISORS, dtypes="int32", low=-9, high=9),)
_FLOAT_DIVISION = (op_case((3, 5), (5,), low=0.5, high=2.0), op_case((), (2, 3), low=0.5, high=2.0))
_BOOL = (op_case((3, 5), (5,), dtypes="bool"), op_case((), (2,), dtypes="bool"))
_EQUAL = (op_case((3, 4), (4,), dtypes="int32", low=0, high=3), op_case((3, 5), (3, 5)))
_ARITHMETIC = replace(CONTINUOUS, commutative=Commutativity.BITWISE)
_EXTREME = replace(CONTINUOUS, commutative=Commutativity.NUMERIC)

add = binary("add", np.add, operator.add, doc="lhs + rhs", cases=(*BINARY_CASES, *_INT),
             grad=lambda call, _y, dy: broadcast_gradients(call, dy, dy),
             traits=linear(_ARITHMETIC))
subtract = binary("subtract", np.subtract, operator.sub, doc="lhs - rhs",
                  cases=(*BINARY_CASES, *_INT),
                  grad=lambda call, _y, dy: broadcast_gradients(call, dy, -dy),
                  traits=linear(CONTINUOUS))


def _tangent_of_sum(_call: Call, y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    """The sum of the tangents; one alone is only broadcast, so no zeros are added."""
    left, right = tangents
    if left is not None and right is not None:
        return op.add(left, right)
    one = right if left is None else left
    if one is None or one.checked_type == y.checked_type:
        return one
    return op.broadcast_to_like(one, y)


def _tangent_of_difference(call: Call, y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    left, right = tangents
    if left is not None and right is not None:
        return op.subtract(left, right)
    return _tangent_of_sum(call, y, (left, None if right is None else op.negative(right).with_type(
        tensor_type(right))))


add.jvp(_tangent_of_sum)
subtract.jvp(_tangent_of_difference)
multiply = binary("multiply", np.multiply, operator.mul, doc="lhs * rhs",
                  cases=(*BINARY_CASES, *_INT),
                  grad=lambda call, _y, dy: broadcast_gradients(
                      call, dy * call.args[1], dy * call.args[0]),
                  traits=multilinear(_ARITHMETIC))
divide = binary("divide", truncated_divide, broadcast.divide,
                doc="lhs / rhs; integer division truncates towards zero",
                cases=(*_FLOAT_DIVISION, *_INT_DIVISION),
                grad=lambda call, y, dy: broadcast_gradients(
                    call, dy / call.args[1], -dy * y / call.args[1]), traits=SENSITIVE)
floor_divide = binary("floor_divide", np.floor_divide, broadcast.floor_divide,
                      doc="The largest integer not above lhs / rhs.",
                      cases=(*_FLOAT_DIVISION, *_INT_DIVISION), traits=ZERO_GRADIENT)
mod = binary("mod", np.fmod, broadcast.truncated_mod,
             doc="The remainder of division with the sign of lhs, as C's % and fmod.",
             cases=(*_FLOAT_DIVISION, *_INT_DIVISION))
floor_mod = binary("floor_mod", np.mod, broadcast.floor_mod,
                   doc="The remainder of division with the sign of rhs, as Python's %.",
                   cases=(*_FLOAT_DIVISION, *_INT_DIVISION))
trunc_divide = binary("trunc_divide", truncated_quotient, broadcast.truncated_divide,
                      doc="lhs / rhs, truncated towards zero.",
                      cases=(*_FLOAT_DIVISION, *_INT_DIVISION), traits=ZERO_GRADIENT)
trunc_mod = binary("trunc_mod", np.fmod, broadcast.truncated_mod,
                   doc="The remainder of trunc_divide, with the sign of lhs.",
                   cases=(*_FLOAT_DIVISION, *_INT_DIVISION),
                   grad=lambda call, _y, dy: broadcast_gradients(
                       call, dy, -dy * trunc_divide(*call.args)))
power = binary("power", np.power, lambda a, b: call(a.dtype, "pow", a, b),
               doc="lhs ** rhs, of floating-point numbers", relation=float_arithmetic,
               cases=(op_case((3, 5), (5,), low=0.1, high=3.0),
                      op_case((2, 3), (), low=0.5, high=2.0)),
               traits=replace(SENSITIVE, is_expensive=True))
maximum = binary("maximum", np.maximum, prim_maximum, doc="The larger operand; NaN if either is.",
                 cases=(*BINARY_CASES, *_INT), traits=_EXTREME)
minimum = binary("minimum", np.minimum, prim_minimum, doc="The smaller operand; NaN if either is.",
                 cases=(*BINARY_CASES, *_INT), traits=_EXTREME)


@power.gradient
def _power_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    base, exponent = call.args
    zero, one = scalar(0.0, exponent), scalar(1.0, exponent)
    # x ** 0 is constant, also at 0, where 0 * 0 ** -1 is not a number.
    slope = op.where(op.equal(exponent, zero), scalar(0.0, base), op.multiply(
        exponent, op.power(base, op.subtract(exponent, one))))
    # The derivative of 0 ** e by e is 0 for e >= 0, although log 0 is infinite.
    flat = op.logical_and(op.equal(base, scalar(0.0, base)), op.greater_equal(exponent, zero))
    grown = op.multiply(y, op.log(op.where(flat, scalar(1.0, base), base)))
    return broadcast_gradients(call, op.multiply(dy, slope), op.multiply(dy, grown))


def _extreme_gradient(is_first: Callable[[Expr, Expr], Expr]) -> GradientRule:
    """The gradient goes to the operand that the result equals; equal operands get half of it."""

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        first, zero = is_first(*call.args), scalar(0.0, dy)
        shared = op.where(equal(*call.args), op.multiply(dy, scalar(0.5, dy)), dy)
        return broadcast_gradients(call, op.where(first, shared, zero),
                                   op.where(op.logical_and(first, not_equal(*call.args)), zero,
                                            shared))

    return rule


def _remainder_gradient(quotient: Callable[[Expr, Expr], Expr]) -> GradientRule:
    """Of ``lhs - quotient * rhs``, where the quotient is piecewise constant."""

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        steps = op.multiply(dy, quotient(*call.args))
        return broadcast_gradients(call, dy, op.negative(steps))

    return rule


floor_mod.gradient(_remainder_gradient(floor_divide))
mod.gradient(_remainder_gradient(trunc_divide))


def _compare(node: type) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    return lambda a, b: prim_compare(node, a, b)


equal = binary("equal", np.equal, _compare(EQ), doc="lhs == rhs", relation=comparison,
               cases=_EQUAL, traits=COMMUTATIVE)
not_equal = binary("not_equal", np.not_equal, _compare(NE), doc="lhs != rhs",
                   relation=comparison, cases=_EQUAL, traits=COMMUTATIVE)
less = binary("less", np.less, _compare(LT), doc="lhs < rhs", relation=comparison, cases=_EQUAL)
less_equal = binary("less_equal", np.less_equal, _compare(LE), doc="lhs <= rhs",
                    relation=comparison, cases=_EQUAL)
greater = binary("greater", np.greater, _compare(GT), doc="lhs > rhs", relation=comparison,
                 cases=_EQUAL)
greater_equal = binary("greater_equal", np.greater_equal, _compare(GE), doc="lhs >= rhs",
                       relation=comparison, cases=_EQUAL)
logical_and = binary("logical_and", np.logical_and, all_of, doc="lhs and rhs, of booleans",
                     relation=logical, cases=_BOOL, traits=COMMUTATIVE)
logical_or = binary("logical_or", np.logical_or, any_of, doc="lhs or rhs, of booleans",
                    relation=logical, cases=_BOOL, traits=COMMUTATIVE)
maximum.gradient(_extreme_gradient(greater_equal))
minimum.gradient(_extreme_gradient(less_equal))


def _where_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    condition, x, y = types
    ctx.expect_bool(0, condition)
    ctx.expect_same_dtype(2, y, x.dtype)
    shape = broadcast_shapes(ctx, x.shape, y.shape)
    for index in (1, 2):
        broadcast_shapes(ctx, condition.shape, types[index].shape)
    ctx.output(TensorType(broadcast_shapes(ctx, condition.shape, shape), x.dtype))
    return True


@define_op("where", relation=_where_relation, pattern=OpPattern.BROADCAST, level=4,
           inputs=("condition", "x", "y"), traits=linear(CONTINUOUS))
def where(condition: te.Tensor, x: te.Tensor, y: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """``x`` where ``condition`` holds, else ``y``; all three broadcast."""
    return broadcast.apply((condition, x, y), broadcast.where, "where")


where.layout(join_layouts)
where.spec(
    np.where,
    op_case((3, 5), (3, 5), (3, 5), dtypes=("bool", "float32")),
    op_case((3, 1), (5,), (), dtypes=("bool", "float32")),
    op_case((4,), (2, 4), (2, 1), dtypes=("bool", "int32"), low=-9, high=9),
)


@where.gradient
def _where_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    condition, x, y = call.args
    zero, source = scalar(0.0, dy), tensor_type(call)
    return [
        typed_zeros(condition),
        sum_to(op.where(condition, dy, zero), source, tensor_type(x)),
        sum_to(op.where(condition, zero, dy), source, tensor_type(y)),
    ]


@dataclass(frozen=True, kw_only=True)
class BroadcastToAttrs(Attrs):
    shape: tuple[KnownDim, ...] = attr(doc="shape of the result", expected="a tuple of sizes",
                                       check=sizes_from(0))


def _broadcast_to_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    shape = ctx.attrs_as(BroadcastToAttrs).shape
    if source.ndim > len(shape):
        ctx.fail("cannot broadcast to a smaller rank", arg=0,
                 expected=f"rank {len(shape)} or less", got=f"rank {source.ndim}")
    offset = len(shape) - source.ndim
    for axis, dim in enumerate(source.shape):
        wanted = shape[offset + axis]
        if not isinstance(dim, AnyDim) and broadcast_dims(dim, wanted) != wanted:
            ctx.fail("cannot broadcast", arg=0, axis=axis,
                     expected=f"{shape[offset + axis]} or 1", got=dim)
    ctx.output(TensorType(shape, source.dtype))
    return True


@define_op("broadcast_to", attrs=BroadcastToAttrs, relation=_broadcast_to_relation,
           pattern=OpPattern.BROADCAST, level=4,
           traits=linear(OpTraits(copies_elements=True, is_identity_at_same_type=True)))
def broadcast_to(x: te.Tensor, attrs: BroadcastToAttrs) -> te.Tensor:
    """``x`` repeated along its axes of size 1, and along new leading axes, up to ``shape``."""
    return broadcast.broadcast_to(x, as_sizes(attrs.shape))


def _broadcast_to_reference(x: Any, shape: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(x, shape)).reshape(shape)


broadcast_to.spec(_broadcast_to_reference, op_case((3, 1), shape=(2, 3, 5)),
                  op_case((), shape=(4,)),
                  op_case((5,), shape=(5,)))


@broadcast_to.gradient
def _broadcast_to_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [sum_to(dy, tensor_type(call), tensor_type(call.args[0]))]


@broadcast_to.batching
def _broadcast_to_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    shape = attrs_of(call, BroadcastToAttrs).shape
    return with_attrs(call, [aligned(args[0], call.args[0], len(shape))], shape=(size, *shape))


for _comparison in (equal, not_equal, less, less_equal, greater, greater_equal):
    _comparison.no_gradient("a comparison is a step")


_FORMS, _SHAPES = "weft.op.qnn.integer_forms", "weft.op.shape_values"
add.refer(integer_form=f"{_FORMS}:add_to_sums")
for _op in (add, subtract, multiply):
    _op.refer(requantized_form=f"{_FORMS}:{_op.name}")
divide.refer(fast_form="weft.op.fast_math:DIVIDE")
for _op in (add, subtract, multiply, divide, floor_divide, trunc_divide, mod, floor_mod, trunc_mod,
            maximum, minimum, equal, not_equal, less, less_equal, greater, greater_equal,
            logical_and, logical_or, where):
    _op.refer(shape_value=f"{_SHAPES}:{_op.name}")
broadcast_to.refer(shape_value=f"{_SHAPES}:moved")
