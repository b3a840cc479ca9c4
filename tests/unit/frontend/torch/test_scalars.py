"""Python numbers beyond the range of a tensor's dtype: torch takes their lowest bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.torch.check import check, torch

pytestmark = pytest.mark.torch
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _extremes(dtype):
    limits = torch.iinfo(dtype)
    inner = torch.tensor([0, 1, 44, 5], dtype=dtype)
    return torch.cat([torch.tensor([limits.min, limits.max], dtype=dtype), inner])


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_arithmetic_wraps(dtype, seed):
    generator = np.random.default_rng(seed)
    # torch itself refuses numbers beyond 64 bits.
    numbers = [300, -1, -129, 2**31, int(generator.integers(-2**40, 2**40))]

    def all_of(x):
        results = []
        for n in numbers:
            results += [x + n, n - x, x * n, x < n, x == n, x >= n, x & n, x ^ n]
        return tuple(results)

    check(all_of, _extremes(dtype))


def test_tensors_are_filled_with_what_torch_takes():
    def all_of(x, h):
        return torch.full_like(x, -1), h * 1e6, h + 1e6, x % -1, x // 300

    check(all_of, torch.tensor([0, 5, 44], dtype=torch.uint8),
          torch.tensor([0.5, -1.0], dtype=torch.float16))


def test_arange_wraps():
    check(lambda x: torch.arange(250, 260, dtype=torch.uint8) + x, torch.tensor(1))
