"""The greatest common divisor of integers."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import COMMUTATIVE, Attrs, OpPattern, define_op, op_case
from weft.ir.typing.relations import broadcast_binary
from weft.op.batching import broadcasting
from weft.op.relations import checked, expect_int
from weft.topi import gcd as topi


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
