"""Layers of random sizes, strides, paddings, dilations and groups, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.torch.check import normal, torch, uniform
from tests.unit.frontend.torch.direct import compare

pytestmark = pytest.mark.torch
aten = torch.ops.aten
DRAWS = 25
BOTH = [True, True]
EVERY = [True, True, True]


def _seeds(count: int = DRAWS) -> range:
    return range(count)


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _numbers(rng: np.random.Generator, low: int, high: int, count: int) -> list[int]:
    return [int(n) for n in rng.integers(low, high + 1, count)]


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds())
def test_convolution_backward(seed):
    rng = _random(seed)
    axes, groups = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    stride, dilation = _numbers(rng, 1, 3, axes), _numbers(rng, 1, 2, axes)
    padding, taps = _numbers(rng, 0, 2, axes), _numbers(rng, 1, 3, axes)
    transposed = bool(rng.integers(0, 2))
    extra = [int(rng.integers(0, s)) if transposed else 0 for s in stride]
    sizes = [int(rng.integers((k - 1) * d + 1, 8)) if (k - 1) * d + 1 < 8 else 8
             for k, d in zip(taps, dilation, strict=True)]
    inputs, outputs = groups * int(rng.integers(1, 3)), groups * int(rng.integers(1, 3))
    pair = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    x, weight = normal(2, inputs, *sizes, seed=seed), normal(*pair, *taps, seed=seed + 1)
    geometry = (stride, padding, dilation, transposed, extra, groups)
    try:
        y = aten.convolution(x, weight, None, *geometry)
    except RuntimeError:
        pytest.skip("torch takes no such geometry")
    if not y.numel():
        pytest.skip("padding takes the whole result away")
    compare(aten.convolution.default, x, weight, normal(outputs, seed=seed), *geometry)
    compare(aten.convolution_backward.default, normal(*y.shape, seed=seed), x, weight, [outputs],
            *geometry, EVERY)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds())
def test_max_pool(seed):
    rng = _random(seed)
    axes = int(rng.integers(2, 4))
    taps = _numbers(rng, 1, 3, axes)
    padding = [int(rng.integers(0, k // 2 + 1)) for k in taps]
    sizes = _numbers(rng, 6, 9, axes)
    geometry = (taps, _numbers(rng, 1, 3, axes), padding, _numbers(rng, 1, 2, axes),
                bool(rng.integers(0, 2)))
    x = normal(*[2] * int(rng.integers(0, 2)), 3, *sizes, seed=seed)
    x = x.round() if seed % 2 else x  # ties
    name = f"max_pool{axes}d_with_indices"
    forward, backward = (getattr(aten, name + end).default for end in ("", "_backward"))
    y, places = forward(x, *geometry)
    compare(forward, x, *geometry)
    compare(backward, normal(*y.shape, seed=seed), x, *geometry, places)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds())
def test_average_pool(seed):
    rng = _random(seed)
    axes = int(rng.integers(2, 4))
    taps = _numbers(rng, 1, 3, axes)
    padding = [int(rng.integers(0, k // 2 + 1)) for k in taps]
    geometry = (taps, _numbers(rng, 1, 3, axes), padding, bool(rng.integers(0, 2)),
                bool(rng.integers(0, 2)), [None, 5][int(rng.integers(0, 2))])
    x = normal(*[2] * int(rng.integers(0, 2)), 3, *_numbers(rng, 4, 8, axes), seed=seed)
    forward, backward = (getattr(aten, f"avg_pool{axes}d{end}").default
                         for end in ("", "_backward"))
    compare(forward, x, *geometry)
    compare(backward, normal(*forward(x, *geometry).shape, seed=seed), x, *geometry)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds())
def test_adaptive_pools(seed):
    rng = _random(seed)
    axes = int(rng.integers(2, 4))
    x = normal(*[2] * int(rng.integers(0, 2)), 3, *_numbers(rng, 1, 7, axes), seed=seed)
    sizes = _numbers(rng, 1, 8, axes)
    grad = normal(*x.shape[:-axes], *sizes, seed=seed + 1)
    compare(getattr(aten, f"_adaptive_avg_pool{axes}d").default, x, sizes)
    compare(getattr(aten, f"_adaptive_avg_pool{axes}d_backward").default, grad, x)
    forward = getattr(aten, f"adaptive_max_pool{axes}d").default
    compare(forward, x, sizes)
    compare(getattr(aten, f"adaptive_max_pool{axes}d_backward").default, grad, x,
            forward(x, sizes)[1])


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds())
def test_grid_sampling(seed):
    rng = _random(seed)
    axes = int(rng.integers(2, 4))
    method = int(rng.integers(0, 3 if axes == 2 else 2))
    options = (method, int(rng.integers(0, 3)), bool(rng.integers(0, 2)))
    x = normal(2, 2, *_numbers(rng, 1, 5, axes), seed=seed)
    grid = uniform(2, *_numbers(rng, 1, 4, axes), axes, low=-2.4, high=2.4, seed=seed + 1)
    forward, backward = (getattr(aten, f"grid_sampler_{axes}d{end}").default
                         for end in ("", "_backward"))
    compare(forward, x, grid, *options, atol=1e-4)
    compare(backward, normal(*forward(x, grid, *options).shape, seed=seed), x, grid, *options,
            BOTH, rtol=1e-3, atol=1e-3)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds())
def test_padding_by_copies(seed):
    rng = _random(seed)
    axes = int(rng.integers(1, 4))
    mode = ("replication", "reflection")[int(rng.integers(0, 2))]
    pads, sizes = _numbers(rng, -1, 3, 2 * axes), _numbers(rng, 4, 6, axes)
    x = normal(*[2] * int(rng.integers(0, 2)), 3, *sizes, seed=seed)
    forward, backward = (getattr(aten, f"{mode}_pad{axes}d{end}").default
                         for end in ("", "_backward"))
    if min(pads) >= 0:
        compare(forward, x, pads)
    compare(backward, normal(*forward(x, pads).shape, seed=seed), x, pads)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds(12))
def test_attention_with_masks(seed):
    rng = _random(seed)
    rows, keys, width = _numbers(rng, 1, 7, 3)
    query, key, value = (normal(2, 3, n, width, seed=seed + i)
                         for i, n in enumerate((rows, keys, keys)))
    mask = None
    if seed % 3:
        mask = normal(*[(rows, keys), (2, 1, rows, keys)][seed % 2], seed=seed)
        mask = torch.where(mask > 1.5, float("-inf"), mask)
    options = (0.0, mask is None and bool(rng.integers(0, 2)), mask,
               [None, 0.4][int(rng.integers(0, 2))])
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    out, log_sum = forward(query, key, value, *options[:2], attn_mask=mask, scale=options[3])
    compare(forward, query, key, value, *options)
    compare(aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
            normal(*out.shape, seed=seed), query, key, value, out, log_sum, *options)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds(12))
def test_batch_norm(seed):
    rng = _random(seed)
    channels = int(rng.integers(1, 5))
    x = normal(int(rng.integers(2, 5)), channels, *_numbers(rng, 1, 4, int(rng.integers(0, 4))),
               seed=seed)
    weight, bias, mean = (normal(channels, seed=seed + i) for i in (1, 2, 3))
    variance, train = normal(channels, seed=seed + 4).abs(), bool(rng.integers(0, 2))
    if seed % 4 == 0:
        weight = bias = None
    forward = aten._native_batch_norm_legit_functional.default
    found = forward(x, weight, bias, mean, variance, train, 0.3, 1e-3)
    compare(forward, x, weight, bias, mean, variance, train, 0.3, 1e-3,
            results=None if train else (0, 3, 4))
    compare(aten.native_batch_norm_backward.default, normal(*x.shape, seed=seed), x, weight, mean,
            variance, *found[1:3], train, 1e-3, EVERY, atol=1e-4)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("seed", _seeds(12))
def test_bags_of_rows(seed):
    rng = _random(seed)
    places, rows, bags = _numbers(rng, 1, 9, 3)
    weight = normal(rows, 3, seed=seed)
    indices = torch.from_numpy(rng.integers(0, rows, places))
    offsets = np.sort(rng.integers(0, places + 1, bags))
    offsets[0] = 0
    mode, padding = int(rng.integers(0, 3)), int(rng.integers(-1, rows))
    factors = normal(places, seed=seed) if mode == 0 and seed % 2 else None
    options = (False, mode, False, factors, False, padding)
    forward = aten._embedding_bag.default
    found = forward(weight, indices, torch.from_numpy(offsets), *options)
    compare(forward, weight, indices, torch.from_numpy(offsets), *options, results=(0,))
    compare(aten._embedding_bag_backward.default, normal(bags, 3, seed=seed), indices,
            torch.from_numpy(offsets), *found[1:], rows, False, mode, False, factors, padding)
