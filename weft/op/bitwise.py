"""Operators of integers: bits, shifts, and the greatest common divisor."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import COMMUTATIVE, Attrs, OpPattern, Relation, define_op, op_case
from weft.ir.typing.relations import broadcast_binary, identity_relation
from weft.op.batching import broadcasting
from weft.op.cut_axes import broadcast_axes
from weft.op.families import binary, logical, unary
from weft.op.relations import checked, expect_int
from weft.tir.expr import PrimExpr, any_of, const, select
from weft.topi import elementwise
from weft.topi import integers as topi

_integers: Relation = checked(expect_int, broadcast_binary(), args=2)
_INT = (op_case((3, 4), (4,), dtypes="int32", low=-99, high=99),
        op_case((), (2, 3), dtypes="uint8", low=0, high=255),
        op_case((0, 4), (1, 4), dtypes="int64", low=-9, high=9))
_SHIFTS = (op_case((3, 4), np.array([0, 1, 5, 31], np.int32), dtypes="int32", low=-99, high=99),
           op_case((3,), np.array([[0], [7]], np.uint8), dtypes="uint8", low=0, high=255))


def _shift(name: str, a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Shift; an amount of the bit width or more acts like repeated shifts by one, on any CPU.

    Negative amounts, read as unsigned, count as too large.
    """
    zero, last = const(0, b.dtype), const(a.dtype.bits - 1, b.dtype)
    beyond = any_of(b < zero, b > last)
    shifted = getattr(te, name)(a, select(beyond, last, b))
    signed_right = name == "shift_right" and a.dtype.code == "int"
    return shifted if signed_right else select(beyond, const(0, a.dtype), shifted)


bitwise_and = binary("bitwise_and", np.bitwise_and, te.bitwise_and, relation=_integers,
                     doc="The bits that are set in both.", cases=_INT, traits=COMMUTATIVE)
bitwise_or = binary("bitwise_or", np.bitwise_or, te.bitwise_or, relation=_integers,
                    doc="The bits that are set in either.", cases=_INT, traits=COMMUTATIVE)
bitwise_xor = binary("bitwise_xor", np.bitwise_xor, te.bitwise_xor, relation=_integers,
                     doc="The bits that differ.", cases=_INT, traits=COMMUTATIVE)
left_shift = binary("left_shift", np.left_shift, lambda a, b: _shift("shift_left", a, b),
                    relation=_integers, doc="lhs * 2**rhs; bits shifted out at the top are lost.",
                    cases=_SHIFTS)
right_shift = binary("right_shift", np.right_shift, lambda a, b: _shift("shift_right", a, b),
                     relation=_integers, doc="The largest integer not above lhs / 2**rhs.",
                     cases=_SHIFTS)
bitwise_not = unary("bitwise_not", np.invert, doc="All bits of x flipped.",
                    relation=checked(expect_int, identity_relation),
                    compute=lambda x: elementwise.apply(x, te.bitwise_not, "bitwise_not"),
                    cases=(op_case((3, 5), dtypes="int32", low=-9, high=9),
                           op_case((), dtypes="uint8", low=0, high=255)))
logical_xor = binary("logical_xor", np.logical_xor, lambda a, b: a.not_equal(b), relation=logical,
                     doc="Whether exactly one of two booleans is true.",
                     cases=(op_case((3, 5), (5,), dtypes="bool"), op_case((), (2,), dtypes="bool")),
                     traits=COMMUTATIVE)


@define_op("gcd", relation=checked(expect_int, broadcast_binary(), args=2),
           pattern=OpPattern.OPAQUE, level=3, inputs=("lhs", "rhs"), traits=COMMUTATIVE)
def gcd(lhs: te.Tensor, rhs: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """The largest integer that divides both, never negative; 0 for two zeros."""
    return topi.gcd(lhs, rhs)


_MIXED = np.array([[0, 12, -18, 2**31 - 1], [7, -64, 1, 832040]], np.int32)
gcd.spec(np.gcd, op_case(_MIXED, np.array([6, 0, 27, 514229], np.int32)),
         op_case((3, 4), (4,), dtypes="int64", low=-99, high=99),
         op_case((0, 4), (1, 4), dtypes="int64"),
         op_case(np.array([255, 0, 96], np.uint8), np.array([[51], [36]], np.uint8)))

gcd.batching(broadcasting)
gcd.cut_axes(broadcast_axes)
