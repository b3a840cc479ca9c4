"""``convert_layout`` beside operators of a user without a registered layout inference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.unit.transform.helpers import check_values, parse_program
from weft import te
from weft.ir import OPS, Attrs, IRModule, OpPattern, attr, define_op, op_case
from weft.ir.types import TupleType
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import identity_relation
from weft.transform import ConvertLayout


@pytest.fixture(autouse=True)
def only_built_in_operators_afterwards():
    """Remove the operators that a test registers."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        OPS.remove(name)


@dataclass(frozen=True, kw_only=True)
class AxisAttrs(Attrs):
    axis: int = attr(1, "axis along which the elements are numbered")


def _after_conv2d(call: str, more: str = "") -> IRModule:
    """A program that applies ``call`` to ``%0``, the result of a convolution."""
    return parse_program(f"""
        def @main(%x: Tensor[(1, 3, 3, 3), float32], %w: Tensor[(3, 3, 1, 1), float32]{more}) {{
          %0 = nn.conv2d(%x, %w);
          {call}
        }}""")


def _check(mod: IRModule) -> None:
    check_values(mod, ConvertLayout(layouts=("nn.conv2d:NHWC:HWIO",))(mod))


def test_an_elementwise_operator_with_an_axis_gets_the_original_order():
    def compute(x: te.Tensor, attrs: AxisAttrs):
        """Each element times its index along an axis."""
        return te.compute(x.shape, lambda *i: x[i] * i[attrs.axis].astype("float32"))

    ramp = define_op("mine.ramp", attrs=AxisAttrs, relation=identity_relation,
                     pattern=OpPattern.ELEMWISE, inputs=("x",))(compute)

    def reference(x: np.ndarray, axis: int) -> np.ndarray:
        shape = [1] * x.ndim
        shape[axis] = -1
        return x * np.arange(x.shape[axis], dtype=x.dtype).reshape(shape)

    ramp.spec(reference, op_case((2, 3), axis=1))
    _check(_after_conv2d("mine.ramp(%0, axis=1)"))


def test_an_elementwise_operator_with_two_results_gets_the_original_order():
    def relation(ctx: RelationContext) -> bool:
        x = ctx.tensor(0)
        if x is not None:
            ctx.output(TupleType((x, x)))
        return x is not None

    def compute(x: te.Tensor, attrs: Attrs):
        """The argument, and twice the argument."""
        return (te.compute(x.shape, lambda *i: x[i]), te.compute(x.shape, lambda *i: x[i] + x[i]))

    both = define_op("mine.both", relation=relation, pattern=OpPattern.ELEMWISE,
                     inputs=("x",))(compute)
    both.spec(lambda x: (x, x + x), op_case((2, 3)))
    _check(_after_conv2d("%1 = mine.both(%0); subtract(%1.1, nn.relu(%1.0))"))


def test_a_vector_that_belongs_to_the_second_axis_keeps_its_meaning():
    def relation(ctx: RelationContext) -> bool:
        x = ctx.tensor(0)
        if x is not None:
            ctx.output(x)
        return x is not None

    def compute(x: te.Tensor, v: te.Tensor, attrs: Attrs):
        """``x`` plus the vector ``v`` along axis 1."""
        return te.compute(x.shape, lambda *i: x[i] + v[i[1]])

    shift = define_op("mine.shift", relation=relation, pattern=OpPattern.BROADCAST)(compute)
    shift.spec(lambda x, v: x + v.reshape(-1, *[1] * (x.ndim - 2)), op_case((2, 3), (3,)))
    _check(_after_conv2d("mine.shift(%0, %v)", ", %v: Tensor[(3,), float32]"))
