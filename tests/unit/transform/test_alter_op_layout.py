from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from tests.unit.transform.random_programs import programs
from weft import op
from weft.ir.expr import Call, Constant, Function, Tuple, TupleGetItem, const, var
from weft.ir.module import IRModule
from weft.ir.passes import PassContext, Sequential
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.transform.layout.alter_op_layout import AlterOpLayout
from weft.transform.layout.layout_choice import LayoutChoice
from weft.transform.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from weft.transform.passes.fold_constant import FoldConstant
from weft.transform.passes.simplify_expr import SimplifyExpr

BLOCK = 8


def blocked_convolution(call, types, target):
    """Blocks of 8 channels; the first convolution reads its few channels unblocked."""
    del target
    data, weight = types
    if weight.shape[0] % BLOCK or call.attrs.groups != 1:
        return None
    blocked = f"NCHW{BLOCK}c"
    data_layout = "NCHW" if data.shape[1] % BLOCK else blocked
    inputs = data.shape[1] if data.shape[1] % BLOCK else BLOCK
    kernel_layout = f"OIHW{inputs}i{BLOCK}o"
    attrs = call.attrs.replace(
        data_layout=data_layout, kernel_layout=kernel_layout, out_layout=blocked
    )
    return LayoutChoice(attrs, (("NCHW", data_layout), ("OIHW", kernel_layout)), blocked)


CONTEXT = PassContext(config={"alter_layout": {"nn.conv2d": blocked_convolution}})
PIPELINE = Sequential((AlterOpLayout(), SimplifyExpr(), FoldConstant(), EliminateCommonSubexpr()))


def weight(*shape):
    return const(np.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(np.float32))


def conv(x, outputs, inputs, **attrs):
    return op.nn.conv2d(x, weight(outputs, inputs, 3, 3), padding=(1, 1), **attrs)


def module(x, body) -> IRModule:
    return infer_type(IRModule.from_expr(Function((x,), body)))


def run(mod, pipeline=PIPELINE) -> IRModule:
    after = pipeline(mod, CONTEXT)
    check_values(mod, after, rtol=1e-4)
    return after


def transforms(mod) -> int:
    return op_calls(mod).count("layout_transform")


def test_example():
    check_example(AlterOpLayout(), CONTEXT)


def test_without_hooks_nothing_changes():
    x = var("x", (1, 8, 4, 4))
    mod = module(x, conv(x, 8, 8))
    assert AlterOpLayout()(mod) is mod


def test_one_convolution_is_converted_there_and_back():
    x = var("x", (1, 8, 4, 4))
    after = run(module(x, op.nn.relu(conv(x, 8, 8))))
    assert op_calls(after) == ["layout_transform", "nn.conv2d", "nn.relu", "layout_transform"]
    convolution = next(
        n for n in post_order(after["main"]) if isinstance(n, Call) and n.op is op.nn.conv2d
    )
    assert isinstance(convolution.args[1], Constant)  # packed at compile time
    assert convolution.args[1].data.shape == (1, 1, 3, 3, 8, 8)


def residual_network():
    x = var("x", (1, 3, 8, 8))
    bias = weight(16, 1, 1)
    y = op.nn.relu(op.add(conv(x, 16, 3), bias))
    y = op.nn.max_pool2d(y, pool_size=(2, 2), strides=(2, 2))
    for _ in range(2):
        z = op.nn.relu(op.add(conv(y, 16, 16), bias))
        y = op.nn.relu(op.add(op.add(conv(z, 16, 16), bias), y))
    pooled = op.reshape(op.nn.global_avg_pool2d(y), newshape=(1, 16))
    return module(x, op.nn.softmax(op.nn.dense(pooled, weight(4, 16)), axis=-1))


def test_a_residual_network_runs_blocked_from_end_to_end():
    after = run(residual_network())
    assert transforms(after) == 0


def test_concatenation_of_whole_blocks_stays_blocked():
    x = var("x", (1, 8, 4, 4))
    fields = Tuple((conv(x, 8, 8), conv(x, 16, 8)))
    after = run(module(x, conv(op.concatenate(fields, axis=1), 8, 24)))
    assert transforms(after) == 2


def test_an_operator_that_cannot_takes_the_data_as_written():
    x = var("x", (1, 8, 4, 4))
    y = op.transpose(conv(x, 8, 8), axes=(0, 2, 3, 1))
    after = run(module(x, y))
    assert transforms(after) == 2


def test_adding_values_of_two_layouts_converts_one():
    x = var("x", (1, 8, 4, 4))
    after = run(module(x, conv(op.add(conv(x, 8, 8), op.exp(x)), 8, 8)))
    # x into the first convolution, exp(x) into the sum, and the result
    assert transforms(after) == 3


def test_results_of_a_split_come_back_as_written():
    x = var("x", (1, 8, 4, 4))
    halves = op.split(conv(x, 16, 8), indices_or_sections=2, axis=1)
    body = Tuple((TupleGetItem(halves, 1), TupleGetItem(halves, 0)))
    run(module(x, body))


def test_branches_see_the_data_as_written():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 8, 4, 4), float32], %w: Tensor[(8, 8, 1, 1), float32],
                  %c: Tensor[(), bool]) {
          %0 = nn.conv2d(%x, %w, kernel_size=(1, 1));
          if (%c) { exp(%0) } else { %0 }
        }""")
    run(mod)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(programs())
def test_random_programs_keep_their_values(mod):
    run(mod, AlterOpLayout())
    run(mod)
