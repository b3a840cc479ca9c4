"""Functions of tensors at the edges of their domain: no axes, no elements, booleans, integers."""

from __future__ import annotations

import math

import pytest

import weft
from weft.support.errors import InvalidInputError

POINT = [
    lambda x: x.softmax(0), lambda x: x.log_softmax(-1).exp(), lambda x: x.cumsum(0) / 2,
    lambda x: x.cumprod(-1) / 2, lambda x: x.max(0).values / 2, lambda x: x.min(-1)[0] / 2,
    lambda x: x.sort().values / 2, lambda x: x.topk(1).values / 2, lambda x: x.median(0)[0] / 2,
    lambda x: x.mode()[0] / 2, lambda x: x.kthvalue(1)[0] / 2, lambda x: x.cummax(0)[0] / 2,
    lambda x: x.logcumsumexp(0) / 2, lambda x: x.quantile(0.5) / 2, lambda x: x.amax() / 2,
    lambda x: x.argmax(0) + 1.0, lambda x: x.logsumexp(0) / 2]


@pytest.mark.parametrize("call", POINT)
def test_a_tensor_without_axes_is_one_element(call):
    found = call(weft.tensor(2.0))
    assert found.shape == ()
    assert found.item() == pytest.approx(1.0)


def test_extremes_of_booleans_are_booleans():
    x = weft.tensor([True, False, True])
    assert (x.min().item(), x.max().item(), x.amax(0).item()) == (False, True, True)
    assert x.max(0).values.dtype is weft.bool
    assert x.sort().values.tolist() == [False, True, True]
    assert x.cummax(0).indices.tolist() == [0, 0, 2]
    assert (x.sum().item(), x.cumsum(0).tolist()) == (2, [1, 1, 2])


@pytest.mark.parametrize("call", [lambda x: x - x, lambda x: -x, lambda x: x // x,
                                  lambda x: x ** x])
def test_arithmetic_that_booleans_do_not_have(call):
    with pytest.raises(InvalidInputError, match="booleans"):
        call(weft.tensor([True]))


def test_numbers_outside_a_dtype_wrap_around():
    x = weft.tensor([0, 1], dtype=weft.uint8)
    assert (x + 300).tolist() == [44, 45]
    assert (x == -1).tolist() == [False, False]
    assert (x * -1).tolist() == [0, 255]
    assert x.clone().fill_(-1).tolist() == [255, 255]


def test_integer_powers():
    x = weft.tensor([2, -3, 1, 0])
    assert (x ** weft.tensor([3, 3, 9, 0])).tolist() == [8, -27, 1, 1]
    assert (2 ** weft.tensor([0, 1, 62])).tolist() == [1, 2, 2 ** 62]
    assert (x ** 7).tolist() == [128, -2187, 1, 0]
    assert (weft.tensor([1, -1, 2]) ** weft.tensor([-1, -3, -1])).tolist() == [1, -1, 0]
    assert (weft.tensor([3], dtype=weft.int8) ** 5).tolist() == [3 ** 5 - 256]
    with pytest.raises(InvalidInputError, match="negative power"):
        x ** -1


def test_spread_takes_torchs_positions():
    x = weft.tensor([[1.0, 2.0], [4.0, 9.0]])
    assert weft.var(x, False).item() == x.var(correction=0).item() == 9.5
    assert weft.var(x, 1, True).tolist() == [0.5, 12.5]
    assert weft.var_mean(x, dim=0, unbiased=False)[0].tolist() == [2.25, 12.25]
    assert math.isnan(weft.tensor([1.0]).std().item())


def test_means_of_no_elements_are_nan():
    assert math.isnan(weft.zeros(0).mean().item())
    assert weft.zeros(0, 2).sum(0).tolist() == [0.0, 0.0]
    assert weft.zeros(2, 0).any(1).tolist() == [False, False]


def test_median_and_quantile_with_nan():
    x = weft.tensor([[3.0, 1.0, 2.0, 9.0], [1.0, math.nan, 0.0, 5.0]])
    assert x[0].median().item() == 2.0
    assert weft.isnan(x.median(1).values).tolist() == [False, True]
    assert x.median(1).indices.tolist() == [2, 1]
    assert x.nanmedian(1).values.tolist() == [2.0, 1.0]
    assert x[0].quantile(weft.tensor([0.0, 0.5, 1.0])).tolist() == [1.0, 2.5, 9.0]
    assert weft.nanquantile(x, 0.5, dim=1).tolist() == [2.5, 1.0]


def test_elements_found_by_looking():
    x = weft.tensor([3, 1, 3, 3, 1])
    values, places, counts = weft.unique(x, return_inverse=True, return_counts=True)
    assert (values.tolist(), places.tolist(), counts.tolist()) == ([1, 3], [1, 0, 1, 1, 0], [2, 3])
    assert weft.unique_consecutive(x).tolist() == [3, 1, 3, 1]
    assert weft.bincount(x, minlength=5).tolist() == [0, 2, 0, 3, 0]
    assert weft.histc(weft.tensor([1.0, 2.0, 1.0]), 4, 0, 3).tolist() == [0.0, 2.0, 1.0, 0.0]


def test_results_of_trace_depend_on_the_argument():
    assert weft.trace(weft.ones(3, 3)).item() == 3.0
    assert "main" in str(weft.trace(lambda x: x + 1, weft.ones(2)))


def test_parts_are_views():
    x = weft.zeros(4)
    weft.tensor_split(x, 2)[1].add_(1)
    weft.atleast_2d(x)[0, 0] = 5.0
    assert x.tolist() == [5.0, 0.0, 1.0, 1.0]


def test_forms_in_place():
    x = weft.tensor([4.0, 9.0])
    assert x.rsqrt_() is x
    assert x.reciprocal_().sub_(1).clamp_max_(1.5).tolist() == pytest.approx([1.0, 1.5])
    assert x.eq_(1.0).tolist() == [1.0, 0.0]
    with pytest.raises(InvalidInputError, match="cannot be converted"):
        weft.tensor([1, 2]).sin_()


def test_conversions_and_new_tensors_take_torchs_keywords():
    x = weft.ones(2)
    assert x.double(memory_format=None).dtype is weft.float64
    assert x.new_zeros((2,), dtype=weft.int64).tolist() == [0, 0]
    assert x.new_full((1,), 3, device="cpu", requires_grad=True).requires_grad
    assert weft.zeros(size=(2, 1)).shape == (2, 1)


def test_names_of_dtypes():
    assert weft.zeros(1, dtype=weft.float).dtype is weft.float32
    assert (weft.int, weft.bool) == (weft.int32, weft.bool_)
    assert weft.result_type(weft.ones(1, dtype=weft.int64), 1.5) is weft.float32
