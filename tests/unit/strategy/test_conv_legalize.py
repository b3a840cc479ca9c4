"""Output channels that make bad blocks are padded when the model is compiled."""

from __future__ import annotations

import math

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import WIDE_CPU
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Call, Constant, Function, var
from weft.ir.module import IRModule
from weft.ir.types import TensorType
from weft.ir.visitor import post_order
from weft.op.nn.conv_reference import conv_reference


def _module(outputs: int, inputs: int = 6, kernel: int = 1, **attrs) -> IRModule:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal((outputs, inputs, kernel, kernel)).astype(np.float32)
    x = var("x", (1, inputs, 9, 7))
    bias = Constant(rng.standard_normal((outputs, 1, 1)).astype(np.float32))
    body = op.nn.relu(op.add(op.nn.conv2d(x, Constant(weight), **attrs), bias))
    return IRModule.from_expr(Function((x,), body))


def _kernel_channels(module: IRModule) -> set[int]:
    """The output channels of the convolutions after optimisation, blocks counted."""
    after = run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized")
    found = set()
    for node in post_order(after["main"]):
        if isinstance(node, Call) and str(node.op).startswith("nn.conv2d"):
            type_ = node.checked_type
            assert isinstance(type_, TensorType)
            _, channels, _, _, *block = type_.concrete_shape
            found.add(channels * math.prod(block))
    return found


@pytest.mark.parametrize(("outputs", "wanted"), [(85, 96), (255, 256), (30, 32), (24, 24),
                                                 (64, 64)])
def test_channels_are_padded_where_that_saves_registers(outputs, wanted) -> None:
    """Rows of seven are short for vectors of sixteen positions, so channels are the lanes."""
    assert _kernel_channels(_module(outputs, kernel=3, padding=(1,) * 4)) == {wanted}


def test_channels_are_not_padded_where_positions_are_the_lanes() -> None:
    assert _kernel_channels(_module(85)) == {85}


def test_kernels_computed_at_run_time_are_not_padded() -> None:
    x, weight = var("x", (1, 6, 9, 7)), var("w", (85, 6, 1, 1))
    module = IRModule.from_expr(Function((x, weight), op.nn.conv2d(x, weight)))
    assert _kernel_channels(module) == {85}


@pytest.mark.parametrize(("outputs", "kernel"), [(85, 1), (21, 3), (5, 3)])
def test_values(outputs, kernel) -> None:
    module = _module(outputs, kernel=kernel, padding=(kernel // 2,) * 4)
    constants = {n.data.shape: n.data for n in post_order(module["main"])
                 if isinstance(n, Constant)}
    weight, bias = constants[outputs, 6, kernel, kernel], constants[outputs, 1, 1]
    x = np.random.default_rng(2).standard_normal((1, 6, 9, 7)).astype(np.float32)
    sums = conv_reference(x, weight, (1, 1), (kernel // 2,) * 4, (1, 1), 1)
    np.testing.assert_allclose(weft.compile(module)(x), np.maximum(sums + bias, 0),
                               rtol=1e-4, atol=1e-4)
