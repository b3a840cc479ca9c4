"""Which reductions a neutral element in their operands leaves as they are."""

from __future__ import annotations

import dataclasses

import pytest

from weft import op, te
from weft.ir.dtype import DType, float32
from weft.ir.expr import Call, Expr, var
from weft.ir.op import Op
from weft.ir.typing.infer import infer_expr
from weft.transform.sharding.index_maps import index_maps
from weft.transform.sharding.neutral import neutral_of, reduces_neutral


def reduced(body: Expr) -> bool:
    call = infer_expr(body)
    assert isinstance(call, Call)
    return all(reduces_neutral(call, f) for f in index_maps(call).factors if f.reduction)


def test_sums_of_products_and_plain_reductions() -> None:
    a, b = var("a", (5, 7)), var("b", (3, 7))
    assert reduced(op.nn.dense(a, b))
    assert reduced(op.max(a, axis=(0,)))
    image, kernel = var("x", (1, 3, 8, 8)), var("w", (2, 3, 3, 3))
    assert reduced(op.nn.conv2d(image, kernel, padding=(1, 1)))


@pytest.mark.parametrize("inner", [te.exp, lambda e: e + 1.0], ids=["exp", "plus one"])
def test_a_sum_of_another_function_is_none(inner: object) -> None:
    """The neutral element of the sum is none of the values that are summed."""
    call = infer_expr(op.sum(var("a", (7,)), axis=(0,)))
    assert isinstance(call, Call)
    assert isinstance(call.op, Op)

    def compute(a: te.Tensor, _: object) -> te.Tensor:
        k = te.reduce_axis((0, 7), "k")
        return te.compute((), lambda: te.sum(inner(a[k]), axis=k))  # type: ignore[operator]

    other = call.replace(op=dataclasses.replace(call.op, compute=compute))
    (factor,) = index_maps(other).factors
    assert factor.reduction == "sum"
    assert not reduces_neutral(other, factor)


def test_neutral_elements() -> None:
    int8 = DType("int", 8)
    assert [neutral_of(kind, int8) for kind in ("sum", "prod", "max", "min")] == [0, 1, -128, 127]
    assert neutral_of("max", float32) == -float("inf")
