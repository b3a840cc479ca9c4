"""random.dropout: dropout of training, which draws its mask from a key."""

from __future__ import annotations

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, OpPattern, TupleGetItem, attr, bool_, define_op, op_case
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import attrs_of, scalar, typed_zeros
from weft.op.random.batched import dropout_each
from weft.op.random.distributions import unit
from weft.op.random.threefry import CASE_KEY, KEY_TYPE, NEXT, derived, expect_key
from weft.support.dataclass import dataclass
from weft.topi import random as topi


@dataclass(frozen=True, kw_only=True)
class RandomDropoutAttrs(Attrs):
    rate: float = attr(0.5, "probability with which an element is dropped",
                       check=lambda r: 0 <= r <= 1, expected="0 <= rate <= 1")

    @property
    def factor(self) -> float:
        """What keeps the expected value: ``1 / (1 - rate)``, or 0 where all is dropped."""
        return 1 / (1 - self.rate) if self.rate < 1 else 0.0


def _relation(ctx: RelationContext) -> bool:
    expect_key(ctx)
    data = ctx.tensor(1)
    if data is None:
        return False
    ctx.expect_float(1, data)
    ctx.output(TupleType((KEY_TYPE, data, TensorType(data.shape, bool_))))
    return True


@define_op("random.dropout", attrs=RandomDropoutAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10, results=3)
def dropout(key: te.Tensor, data: te.Tensor, attrs: RandomDropoutAttrs) -> tuple[te.Tensor, ...]:
    """The next key, ``data`` with elements dropped, and the mask of the elements kept.

    Each element is zero with probability ``rate``, and else divided by ``1 - rate`` (Srivastava
    et al. 2014). The mask depends on the key and the position alone, not on the dtype.
    """
    result, mask = topi.dropout(key, data, attrs.rate, attrs.factor)
    return topi.derived_key(key, NEXT), result, mask


def _reference(key: np.ndarray, data: np.ndarray, rate: float = 0.5) -> tuple[np.ndarray, ...]:
    factor = RandomDropoutAttrs(rate=rate).factor
    mask = unit(key, data.shape, np.dtype(np.float32)) >= np.float32(rate)
    scaled = data * data.dtype.type(factor)
    return derived(key, NEXT), np.where(mask, scaled, data.dtype.type(0)), np.asarray(mask)


dropout.spec(
    _reference,
    op_case(CASE_KEY, (4, 5)),
    op_case(CASE_KEY, (2, 3, 4), rate=0.1),
    op_case(CASE_KEY, (7,), rate=0.0),
    op_case(CASE_KEY, (7,), rate=1.0),
    op_case(CASE_KEY, (0, 3)),
    op_case(CASE_KEY, (3, 3), rate=0.3, dtypes="float64"),
)


@dropout.gradient
def _gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """The gradient of the elements kept, divided by ``1 - rate``."""
    key, data = call.args
    arriving, mask = TupleGetItem(dy, 1), TupleGetItem(y, 2)
    scaled = op.multiply(arriving, scalar(attrs_of(call, RandomDropoutAttrs).factor, data))
    return [typed_zeros(key), op.where(mask, scaled, scalar(0.0, data))]


dropout.batching(dropout_each)
