"""ATen's backward operators, and forward ones that save results for them."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, imported, normal, torch

pytestmark = pytest.mark.torch
aten = torch.ops.aten
EVERY = [True, True, True]


@pytest.mark.parametrize("case", [
    {"x": (2, 4, 7), "weight": (6, 4, 3), "stride": [2], "padding": [1], "dilation": [1]},
    {"x": (2, 4, 6, 7), "weight": (6, 2, 3, 2), "stride": [2, 1], "padding": [1, 0],
     "dilation": [1, 2], "groups": 2},
    {"x": (1, 3, 5, 5), "weight": (6, 1, 3, 3), "stride": [1, 1], "padding": [1, 1],
     "dilation": [1, 1], "groups": 3},
    {"x": (1, 2, 4, 4, 3), "weight": (3, 2, 2, 2, 2), "stride": [1, 2, 1], "padding": [1, 0, 0],
     "dilation": [1, 1, 1]},
    {"x": (2, 4, 5, 4), "weight": (4, 3, 3, 3), "stride": [2, 2], "padding": [1, 1],
     "dilation": [1, 1], "transposed": True, "extra": [1, 0]},
    {"x": (2, 4, 5), "weight": (4, 2, 3), "stride": [2], "padding": [0], "dilation": [2],
     "transposed": True, "groups": 2},
])
def test_convolution_backward(case):
    transposed, groups = case.get("transposed", False), case.get("groups", 1)
    extra = case.get("extra", [0] * len(case["stride"]))
    geometry = (case["stride"], case["padding"], case["dilation"], transposed, extra, groups)
    x, weight = normal(*case["x"]), normal(*case["weight"], seed=1)
    result = aten.convolution(x, weight, None, *geometry)
    check(lambda g, a, b: aten.convolution_backward(g, a, b, [result.shape[1]], *geometry, EVERY),
          normal(*result.shape, seed=2), x, weight, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 2)])
def test_batch_norm_in_training(shape):
    x, weight, bias = normal(*shape), normal(3, seed=1), normal(3, seed=2)
    mean, variance = normal(3, seed=3), normal(3, seed=4).abs()

    def train(*args):
        return (*aten._native_batch_norm_legit_functional(*args, True, 0.1, 1e-3),
                *aten._native_batch_norm_legit.no_stats(*args[:3], True, 0.1, 1e-3))

    check(train, x, weight, bias, mean, variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_backward(train):
    x, weight, bias = normal(4, 3, 5), normal(3, seed=1), normal(3, seed=2)
    mean, variance = normal(3, seed=3), normal(3, seed=4).abs()
    _, saved, rest = aten._native_batch_norm_legit.no_stats(x, weight, bias, True, 0.1, 1e-3)
    check(lambda *args: aten.batch_norm_backward(*args, train, 1e-3, EVERY,
                                                 torch.empty(0, dtype=torch.uint8)),
          normal(4, 3, 5, seed=5), x, weight, mean, variance, saved, rest, rtol=1e-4, atol=1e-5)


def test_norms_take_any_epsilon():
    x = normal(2, 4, 3) * 3
    check(lambda a: aten.native_layer_norm(a, [4, 3], None, None, -0.5), x, rtol=1e-4, atol=1e-5)
    check(lambda a, w: aten.native_group_norm(a, w, None, 2, 4, 3, 2, -0.5), x,
          normal(4, seed=1), rtol=1e-4, atol=1e-5)


_MASK = torch.tensor([[True, False, True, True, False], [True, True, True, False, True],
                      [False, False, False, False, True], [True, True, False, False, False]])
ATTENTION = [
    {},
    {"is_causal": True},
    {"scale": 0.3},
    {"attn_mask": torch.where(_MASK, 0.5, float("-inf"))},
]


@pytest.mark.parametrize("options", ATTENTION)
@pytest.mark.parametrize("heads", [4, 2])
def test_flash_attention_and_its_gradient(options, heads):
    """With fewer heads of key and value than of the query, several of these share one."""
    query, key, value = (normal(2, h, n, 8, seed=s)
                         for s, (h, n) in enumerate(((4, 4), (heads, 5), (heads, 5))))
    flash = aten._scaled_dot_product_flash_attention_for_cpu
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
    causal = {"is_causal": False, "dropout_p": 0.0} | options

    def grouped(q, k, v):
        return flash(q, k, v, **causal)

    check(grouped, query, key, value, rtol=1e-4, atol=1e-5)
    if heads < 4:
        return  # torch's own kernel has no gradient for shared heads
    out, log_sum = flash(query, key, value, **causal)
    check(lambda *args: backward(*args, **causal), normal(*out.shape, seed=7), query, key, value,
          out, log_sum, rtol=1e-4, atol=1e-5)


POOLS = [
    {"kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 1]},
    {"kernel_size": [2, 2], "stride": [3, 1], "dilation": [2, 3], "padding": [1, 1]},
    {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 0], "ceil_mode": True},
]


@pytest.mark.parametrize("window", POOLS)
def test_max_pool_says_where_and_leads_gradients_there(window):
    """Ties go to the first element, and a window of minus infinities to its first one."""
    x = normal(2, 3, 7, 6).round()
    x[0, 0] = float("-inf")
    geometry = (window["kernel_size"], window["stride"], window["padding"],
                window.get("dilation", [1, 1]), window.get("ceil_mode", False))
    check(lambda a: aten.max_pool2d_with_indices(a, *geometry), x)
    check(lambda a: aten.max_pool2d_with_indices(a, *geometry), x[1])
    value, places = aten.max_pool2d_with_indices(x, *geometry)
    check(lambda g, a, i: aten.max_pool2d_with_indices_backward(g, a, *geometry, i),
          normal(*value.shape, seed=1), x, places)


@pytest.mark.parametrize("name", ["bilinear", "bicubic"])
@pytest.mark.parametrize("corners", [False, True])
def test_resizing_with_wide_filters(name, corners):
    x = normal(2, 3, 9, 4)
    forward, backward = (getattr(aten, f"_upsample_{name}2d_aa{end}").default
                         for end in ("", "_backward"))
    check(lambda g, a: (forward(a, [4, 7], corners, None, None),
                        backward(g, [4, 7], [2, 3, 9, 4], corners, None, None)),
          normal(2, 3, 4, 7, seed=1), x)


def test_random_slopes_are_fixed_at_inference():
    x = normal(4, 5)
    check(lambda a, n: aten.rrelu_with_noise_functional(a, n, 0.1, 0.3, False), x, normal(4, 5))
    for train in (False, True):
        check(lambda g, a, n, t=train: aten.rrelu_with_noise_backward(g, a, n, 0.1, 0.3, t, False),
              normal(4, 5, seed=1), x, normal(4, 5, seed=2))


def test_gradient_of_a_depthwise_convolution_is_one_convolution():
    """Not one for each of its groups."""
    geometry = ([1, 1], [1, 1], [1, 1], False, [0, 0], 64)
    mod = imported(lambda g, a, b: aten.convolution_backward(g, a, b, [64], *geometry, EVERY),
                   (normal(1, 64, 6, 6), normal(1, 64, 6, 6), normal(64, 1, 3, 3)))
    assert str(mod).count("nn.conv2d(") <= 3
