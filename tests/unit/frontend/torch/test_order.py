"""Order, ranks and running extremes: ties, NaN and extremes of every dtype."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.torch.check import check, imported, integers, normal, torch

pytestmark = pytest.mark.torch
DTYPES = ("float32", "float64", "int64", "int8", "uint8", "bool")


def drawn(dtype: str, *shape: int, seed: int = 0):
    """Few values, so that many are equal, the extremes of the dtype among them."""
    generator = np.random.default_rng(seed)
    if dtype.startswith("float"):
        values = [0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, np.finfo(dtype).max]
    elif dtype == "bool":
        values = [False, True]
    else:
        limits = np.iinfo(dtype)
        values = [limits.min, limits.max, 0, 1, limits.max - 1]
    return torch.from_numpy(generator.choice(np.array(values, dtype), shape))


@pytest.mark.parametrize("dtype", DTYPES)
def test_order_of_ties_and_extremes(dtype):
    def all_of(x, y):
        results = []
        for axis in (0, -1):
            results += [*torch.sort(x, dim=axis, stable=True),
                        *torch.sort(x, dim=axis, descending=True, stable=True),
                        torch.argsort(x, dim=axis, stable=True)]
            results += [*torch.cummax(x, axis), *torch.cummin(x, axis)]
            # With NaN the mode of torch depends on the order of the elements.
            results += [torch.mode(x.nan_to_num() if x.is_floating_point() else x, axis).values]
        if dtype != "bool":
            results += [torch.kthvalue(x, 2, 1).values, torch.median(x, 0).values,
                        torch.nanmedian(x, 1, keepdim=True).values, torch.median(x)]
        return (*results, *torch.sort(y), *torch.cummax(y, 0))

    check(all_of, drawn(dtype, 5, 7), drawn(dtype, seed=3))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_values_alone_sort_without_positions(dtype):
    def values(x):
        return torch.sort(x, dim=0, descending=True).values

    check(values, drawn(dtype, 70, 3))
    text = str(imported(values, (drawn(dtype, 70, 3),)))
    assert ("argsort" in text) == (dtype == "bool")


def test_scalars_have_one_axis():
    def all_of(x, i):
        return (*torch.sort(x), *torch.topk(x, 1), torch.softmax(x, 0), torch.log_softmax(x, 0),
                torch.flip(x, (0,)), x.unfold(0, 1, 1), torch.index_select(x, 0, i.reshape(1)),
                torch.gather(x, 0, i), torch.scatter(x, 0, i, 2.0),
                torch.scatter_add(x, 0, i, x), torch.index_add(x, 0, i, x),
                torch.median(x, 0).values, torch.logcumsumexp(x, 0), x.kthvalue(1).values,
                torch.mode(x).indices, torch.take(x, i), x.index_copy(0, i, x))

    check(all_of, torch.tensor(1.5), torch.tensor(0))


def test_searches_and_histograms():
    def all_of(line, x, i, times):
        return (torch.searchsorted(line, x), torch.searchsorted(line, x, right=True),
                torch.bucketize(x, line), torch.bucketize(i, line, right=True),
                torch.bucketize(0.3, line), torch.isin(i, i[0]), torch.isin(i, 3),
                torch.histc(x, 4), torch.histc(x, 5, -1, 1), torch.histc(x * 0, 3),
                *torch.histogram(x, 4), *torch.histogram(x, line, weight=x.abs(), density=True),
                torch.nonzero_static(i > 0, size=9, fill_value=-7),
                torch.repeat_interleave(x, times, 1, output_size=7))

    check(all_of, torch.tensor([-1.0, 0.25, 0.25, 2.0]), normal(3, 4), integers(3, 4),
          torch.tensor([1, 0, 4, 2]))


def test_bits_of_floats():
    values = [0.0, -0.0, 1.0, -1.5, 1e-45, -1e-40, 3.4e38, float("inf"), -float("inf"),
              float("nan")]
    first = torch.tensor(values).repeat(len(values))
    second = torch.tensor(values).repeat_interleave(len(values))

    def all_of(x, y):
        return (torch.nextafter(x, y), torch.copysign(x, y), torch.signbit(x), torch.fmax(x, y),
                torch.fmin(x, y), *torch.frexp(x), torch.copysign(x, -1.0))

    check(all_of, first, second, rtol=0, atol=0)
    check(all_of, first.double(), second.double() * 1e-310, rtol=0, atol=0)


def test_angles_and_lengths():
    values = [0.0, -0.0, 1.0, -1.5, 2e-38, 3e38, -3e38, float("inf"), -float("inf"), float("nan")]
    first = torch.tensor(values).repeat(len(values))
    second = torch.tensor(values).repeat_interleave(len(values))

    def all_of(x, y):
        return (torch.atan2(x, y), torch.hypot(x, y), torch.angle(x), torch.exp2(y),
                torch.ldexp(x, torch.ones_like(x)), torch.logaddexp2(x, y),
                torch.atan2(x.half(), y.half()))

    check(all_of, first, second)
    check(all_of, normal(50) * 3, normal(50, seed=1) * 3)


def test_common_divisors_and_shifts():
    def all_of(x, y):
        return (torch.gcd(x, y), torch.lcm(x, y), x << (y.abs() % 8), x >> (y.abs() % 8),
                torch.gcd(x.to(torch.uint8), y.to(torch.uint8)))

    check(all_of, integers(6, 5, low=-60, high=60), integers(5, low=-60, high=60, seed=1))


def test_running_sums_of_exponentials():
    check(lambda x: (torch.logcumsumexp(x, 0), torch.logcumsumexp(x, 1)),
          torch.tensor([[1.0, -float("inf"), 88.0], [float("inf"), 3.0, -88.0]]))
