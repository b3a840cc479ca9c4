"""Convolutions whose batch, height and width arrive at run time.

The loop programs are evaluated, not built: the evaluator refuses an access beyond a buffer, which
is what a wrong tail does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU
from weft import op
from weft.ir.expr import Constant, Function, Var, var
from weft.ir.shape import SymDim
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.runtime.sizes import evaluate as evaluate_size
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.cpu.convolution.decide import decide_convolution
from weft.target import CpuTarget
from weft.tir.eval import evaluate
from weft.topi.layout import Layout, transform_array

SIZES = ((1, 1, 1), (2, 5, 3), (1, 2, 9), (0, 2, 2))


def blocked(shape: tuple[Any, ...], layout: str) -> tuple[Any, ...]:
    """The shape of images (N, C, H, W) in ``layout``."""
    if layout == "NCHW":
        return shape
    factor = Layout.parse(layout).factor_of("C")
    return shape[0], shape[1] // factor, *shape[2:], factor


def reference(x: np.ndarray, weight: np.ndarray, attrs: dict[str, Any]) -> np.ndarray:
    return op.nn.conv2d.reference(x, weight, **attrs) if x.size else np.zeros(
        (0, len(weight), *(((x.shape[2:] + np.array(attrs["padding"]) * 2 - weight.shape[2:])
                            // attrs["strides"]) + 1)), np.float32)


class Convolution:
    """The kernel that the decision gives for symbolic images, and the arrays to run it with."""

    def __init__(self, weight: tuple[int, ...], target: CpuTarget, **attrs: Any) -> None:
        rng = np.random.default_rng(0)
        self.attrs = {"strides": (1, 1), "padding": (1, 1), "groups": 1, **attrs}
        self.weight = rng.uniform(-1, 1, weight).astype(np.float32)
        self.channels = weight[1] * self.attrs["groups"]
        images = (SymDim.symbol("n"), self.channels, SymDim.symbol("h"), SymDim.symbol("w"))
        x = var("x", images)
        call = infer_expr(op.nn.conv2d(x, Constant(self.weight), **self.attrs))
        decision = decide_convolution(call, target, winograd=False)
        assert decision is not None
        self.plan = decision.plan
        self.kernel = self._lowered(images, target)

    def _lowered(self, images: tuple[Any, ...], target: CpuTarget) -> LoweredKernel:
        plan = self.plan
        self.packed = transform_array(self.weight, Layout.parse("OIHW"),
                                      Layout.parse(plan.kernel_layout))
        params: tuple[Var, ...] = (var("x", blocked(images, plan.data_layout)),
                                   var("k", self.packed.shape))
        body = infer_expr(op.nn.relu(op.nn.conv2d(
            *params, **self.attrs, data_layout=plan.data_layout, kernel_layout=plan.kernel_layout,
            out_layout=plan.out_layout, finite_kernel=True, algorithm=plan.algorithm)))
        assert isinstance(body.checked_type, TensorType)
        return lower_function(
            Function(params, body, body.checked_type, attrs={"primitive": True}), target)

    def check(self, batch: int, height: int, width: int) -> None:
        x = np.random.default_rng(1).uniform(-1, 1, (batch, self.channels, height, width))
        x = x.astype(np.float32)
        expected = np.maximum(reference(x, self.weight, self.attrs), 0)
        data, out_layout = Layout.parse(self.plan.data_layout), Layout.parse(self.plan.out_layout)
        out = np.full(blocked(expected.shape, out_layout.name), np.nan, np.float32)
        sizes = {"n": batch, "h": height, "w": width}
        evaluate(self.kernel.func, transform_array(x, Layout.parse("NCHW"), data), self.packed,
                 out, *(evaluate_size(s, sizes) for s in self.kernel.sizes))
        got = transform_array(out, out_layout, Layout.parse("NCHW"))
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4, err_msg=str(sizes))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("algorithm", "weight", "attrs"), [
    ("direct_blocked", (16, 8, 1, 1), {"padding": (0, 0), "strides": (2, 2)}),
    ("depthwise_blocked", (16, 1, 3, 3), {"groups": 16}),
    *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("direct_blocked", (16, 4, 3, 3), {}),
        ("direct_blocked", (16, 4, 3, 3), {"groups": 2, "strides": (2, 2)}),
        ("depthwise_blocked", (16, 1, 3, 3), {"groups": 16, "strides": (2, 2)}),
        ("direct_unblocked", (2, 3, 3, 3), {}),
        ("depthwise_unblocked", (3, 1, 3, 3), {"groups": 3}),
    )),
])
def test_one_kernel_runs_images_of_all_sizes(
    algorithm: str, weight: tuple[int, ...], attrs: dict[str, Any]
) -> None:
    convolution = Convolution(weight, WIDE_CPU, **attrs)
    assert convolution.plan.algorithm == algorithm
    for sizes in SIZES:
        convolution.check(*sizes)


@pytest.mark.sample(0.3)
@pytest.mark.slow
@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize("weight", [(8, 3, 5, 5), (24, 1, 3, 3), (16, 2, 3, 3)])
def test_few_registers_run_the_same_images(
    weight: tuple[int, ...], strides: tuple[int, int]
) -> None:
    groups = weight[0] if weight[1] == 1 else 1
    convolution = Convolution(weight, SMALL_CPU, strides=strides, padding=(2, 2), groups=groups)
    for sizes in SIZES:
        convolution.check(*sizes)


def test_symbolic_channels_take_the_generic_schedule() -> None:
    x, w = var("x", ("n", "c", "h", "w")), var("w", ("o", "c", 3, 3))
    call = infer_expr(op.nn.conv2d(x, w, padding=(1, 1)))
    decision = decide_convolution(call, WIDE_CPU)
    assert decision is not None
    assert decision.algorithm == "generic"
    assert any("symbolic" in r.reason for r in decision.rejected)
