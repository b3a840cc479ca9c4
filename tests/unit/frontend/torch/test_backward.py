"""ATen's backward operators, and forward ones that save results for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.frontend.torch.check import imported, normal, torch
from tests.unit.frontend.torch.direct import compare

pytestmark = pytest.mark.torch
aten = torch.ops.aten
EVERY = [True, True, True]


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_backward_with_a_reserve(train):
    x, weight, bias = normal(4, 3, 5), normal(3, seed=1), normal(3, seed=2)
    mean, variance = normal(3, seed=3), normal(3, seed=4).abs()
    _, saved, rest = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-3)
    compare(aten._native_batch_norm_legit.no_stats, x, weight, bias, True, 0.1, 1e-3)
    compare(aten.batch_norm_backward.default, normal(4, 3, 5, seed=5), x, weight, mean, variance,
            saved, rest, train, 1e-3, EVERY, torch.empty(0, dtype=torch.uint8))


def test_norms_take_any_epsilon():
    x = normal(2, 4, 3) * 3
    compare(aten.native_layer_norm.default, x, [4, 3], None, None, -0.5)
    compare(aten.native_group_norm.default, x, normal(4, seed=1), None, 2, 4, 3, 2, -0.5)


@pytest.mark.parametrize("causal", [False, True])
def test_several_heads_of_a_query_share_one_of_keys(causal):
    query, key, value = (normal(2, h, n, 8, seed=s)
                         for s, (h, n) in enumerate(((4, 4), (2, 5), (2, 5))))
    compare(aten._scaled_dot_product_flash_attention_for_cpu.default, query, key, value, 0.0,
            causal, None, None)


def test_gradients_of_heads_that_are_shared():
    """Those of a copy of keys and values for each head, summed."""
    query, key, value = (normal(2, h, n, 8, seed=s)
                         for s, (h, n) in enumerate(((4, 4), (2, 5), (2, 5))))
    flash = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    copies = [x.repeat_interleave(2, 1) for x in (key, value)]
    out, log_sum = flash(query, *copies)
    grad = normal(*out.shape, seed=7)
    by_head = backward(grad, query, *copies, out, log_sum, 0.0, False)
    expected = [by_head[0], *(g.unflatten(1, (2, 2)).sum(2) for g in by_head[1:])]
    compare(_Known(backward.default, expected), grad, query, key, value, out, log_sum, 0.0, False,
            None, None)


class _Known:
    """An operator with results that are known, for operands that torch's own kernel refuses."""

    def __init__(self, overload: Any, results: Sequence[Any]) -> None:
        self._name, self._schema, self._results = str(overload), overload._schema, results

    def __call__(self, *_args: Any, **_named: Any) -> tuple[Any, ...]:
        return tuple(self._results)

    def __str__(self) -> str:
        return self._name


@pytest.mark.parametrize("window", [
    ([3, 2], [2, 2], [1, 1], [1, 1], False), ([3, 3], [2, 2], [1, 0], [1, 1], True)])
def test_max_pool_of_ties_and_of_the_lowest_number(window):
    """Ties go to the first element, and a window of minus infinities to its first one."""
    x = normal(2, 3, 7, 6).round()
    x[0, 0] = float("-inf")
    compare(aten.max_pool2d_with_indices.default, x, *window)


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("sizes", [[4, 7], [13, 2]])
def test_resizing_with_wide_filters(name, corners, sizes):
    forward, backward = (getattr(aten, f"_upsample_{name}2d_aa{end}").default
                         for end in ("", "_backward"))
    compare(forward, normal(2, 3, 9, 4), sizes, corners, None, None)
    compare(backward, normal(2, 3, *sizes, seed=1), sizes, [2, 3, 9, 4], corners, None, None)


def test_random_slopes_are_fixed_at_inference():
    x, noise, grad = normal(4, 5), normal(4, 5, seed=2), normal(4, 5, seed=1)
    compare(aten.rrelu_with_noise_functional.default, x, noise, 0.1, 0.3, False, None)
    for train in (False, True):
        compare(aten.rrelu_with_noise_backward.default, grad, x, noise, 0.1, 0.3, train, False)


def test_gradient_of_a_depthwise_convolution_is_one_convolution():
    """Not one for each of its groups."""
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 64)
    mod = imported(lambda g, a, b: aten.convolution_backward(g, a, b, [64], *geometry, EVERY),
                   (normal(1, 64, 6, 6), normal(1, 64, 6, 6), normal(64, 1, 3, 3)))
    assert str(mod).count("nn.conv2d(") <= 3
