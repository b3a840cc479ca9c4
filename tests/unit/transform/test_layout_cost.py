"""Of several layouts the pass takes the one that is fastest with the conversions around it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tests.unit.transform.helpers import check_values, op_calls
from tests.unit.transform.test_alter_op_layout import (
    PIPELINE,
    blocked_convolution,
    conv,
    module,
    weight,
)
from weft import op
from weft.codegen.backend import cost_model_of
from weft.codegen.cost_model import CostModel
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import make_context
from weft.ir.expr import Call, const, var
from weft.ir.passes import PassContext
from weft.ir.types import TensorType
from weft.ir.visitor import post_order
from weft.transform.layout.alter_op_layout import AlterOpLayout
from weft.transform.layout.layout_choice import LayoutChoice


class NanosecondPerElement(CostModel):
    def conversion_seconds(self, type_):
        return 1e-9 * math.prod(type_.shape)


CONVERSION = 8 * 4 * 4e-9  # seconds for one tensor of the convolutions below


def context(unblocked_seconds: float) -> PassContext:
    """Blocked convolutions take no time, unblocked ones ``unblocked_seconds``."""

    def hook(call, types, target):
        blocked = blocked_convolution(call, types, target)
        return blocked and (
            blocked, LayoutChoice(call.attrs, (("NCHW", "NCHW"), None), seconds=unblocked_seconds)
        )

    return PassContext(config={"alter_layout": {"nn.conv2d": hook},
                               "cost_model": NanosecondPerElement()})


def blocked_convolutions(mod) -> list[bool]:
    return [node.attrs.data_layout != "NCHW" for node in post_order(mod["main"])
            if isinstance(node, Call) and node.op is op.nn.conv2d]


@pytest.mark.parametrize(("unblocked_seconds", "blocked"), [(1.9, False), (2.1, True)])
def test_a_lone_convolution_pays_for_both_conversions(unblocked_seconds, blocked):
    x = var("x", (1, 8, 4, 4))
    mod = module(x, op.nn.relu(conv(x, 8, 8)))
    after = AlterOpLayout()(mod, context(unblocked_seconds * CONVERSION))
    assert blocked_convolutions(after) == [blocked]
    assert op_calls(after).count("layout_transform") == (3 if blocked else 0)  # with the weights


@pytest.mark.parametrize(("unblocked_seconds", "blocked"), [(0.9, False), (1.1, True)])
def test_a_chain_shares_them(unblocked_seconds, blocked):
    x = var("x", (1, 8, 4, 4))
    body = conv(op.nn.relu(conv(x, 8, 8)), 8, 8)
    after = AlterOpLayout()(module(x, body), context(unblocked_seconds * CONVERSION))
    assert blocked_convolutions(after) == [blocked, blocked]


def test_padded_channels_are_cut_off_again():
    def hook(call, types, target):
        data, kernel = types
        more = -kernel.shape[0] % 8
        filled = call.attrs.replace(channels=kernel.shape[0] + more)
        wide = dataclasses.replace(
            types[1], shape=(kernel.shape[0] + more, *kernel.shape[1:])
        )
        choice = blocked_convolution(call.replace(attrs=filled), (data, wide), target)
        return dataclasses.replace(choice, paddings=(None, (more, 0, 0, 0)),
                                   cut=(1, kernel.shape[0]))

    x = var("x", (1, 8, 4, 4))
    mod = module(x, op.add(conv(x, 5, 8), const(weight(5, 1, 1).data)))
    after = PIPELINE(mod, PassContext(config={"alter_layout": {"nn.conv2d": hook}}))
    assert "strided_slice" in op_calls(after)
    check_values(mod, after, rtol=1e-4)


def test_the_pipeline_gives_the_cost_of_conversions_by_bytes():
    model = cost_model_of(make_context(CompileOptions.make("llvm -mcpu=znver4")))
    wide, narrow = (model.conversion_seconds(TensorType.of((1, 64, 56, 56), dtype))
                    for dtype in ("float32", "float16"))
    assert 10e-6 < wide < 1e-3
    assert wide == pytest.approx(2 * narrow)


def test_data_in_other_blocks_changes_its_layout_too():
    """Of two equally fast choices the one for the blocks that arrive is taken."""

    def hook(call, types, target):
        if call.attrs.data_layout != "NCHW":
            return None
        eights = blocked_convolution(call, types, target)
        fours = dataclasses.replace(
            eights, attrs=call.attrs.replace(data_layout="NCHW4c", kernel_layout="OIHW4i8o",
                                             out_layout="NCHW8c"),
            input_layouts=(("NCHW", "NCHW4c"), ("OIHW", "OIHW4i8o")))
        return fours, eights

    x = var("x", (1, 8, 4, 4))
    after = AlterOpLayout()(module(x, conv(conv(x, 8, 8), 8, 8)), PassContext(
        config={"alter_layout": {"nn.conv2d": hook}, "cost_model": NanosecondPerElement()}))
    layouts = [node.attrs.data_layout for node in post_order(after["main"])
               if isinstance(node, Call) and node.op is op.nn.conv2d]
    assert layouts == ["NCHW4c", "NCHW8c"]
