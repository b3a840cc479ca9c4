"""Elements written or combined at indices, masks, slices and diagonals, and views of memory."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidInputError


def test_index_put_writes_and_adds():
    x, at = weft.zeros(2, 3), (weft.tensor([0, 1, 0]), weft.tensor([2, 0, 2]))
    assert x.index_put(at, weft.tensor([1.0, 2.0, 3.0])).tolist() == [[0, 0, 3], [2, 0, 0]]
    assert x.index_put(at, weft.tensor(1.0), accumulate=True).tolist() == [[0, 0, 2], [1, 0, 0]]
    assert x.index_put((None, weft.tensor([-1])), weft.ones(1)).tolist() == [[0, 0, 1]] * 2
    x.index_put_((x == 0,), weft.tensor(4.0), accumulate=True)
    assert x.tolist() == [[4.0] * 3] * 2


def test_gradients_of_added_elements():
    x, values = weft.zeros(3, requires_grad=True), weft.ones(2, requires_grad=True)
    y = x.index_put((weft.tensor([1, 1]),), values, accumulate=True)
    (y * weft.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert (x.grad.tolist(), values.grad.tolist()) == ([1, 2, 3], [2, 2])


def test_put_counts_in_the_flattened_tensor():
    x = weft.zeros(2, 2)
    assert x.put(weft.tensor([[0], [-1]]), weft.tensor([5.0, 6.0])).tolist() == [[5, 0], [0, 6]]
    assert x.put(weft.tensor([1, 1]), weft.ones(2), accumulate=True).tolist() == [[0, 2], [0, 0]]


@pytest.mark.parametrize(("reduce", "with_self", "without"), [
    ("sum", [7.0, 2.0], [6.0, 2.0]), ("prod", [8.0, 2.0], [8.0, 2.0]),
    ("mean", [7 / 3, 2.0], [3.0, 2.0]), ("amax", [4.0, 2.0], [4.0, 2.0]),
    ("amin", [1.0, 2.0], [2.0, 2.0])])
def test_reductions_of_what_arrives_at_an_element(reduce, with_self, without):
    x, at, src = weft.tensor([1.0, 2.0]), weft.tensor([0, 0]), weft.tensor([2.0, 4.0])
    found = [weft.scatter_reduce(x, 0, at, src, reduce).tolist(),
             weft.index_reduce(x, 0, at, src, reduce, include_self=False).tolist()]
    np.testing.assert_allclose(found, [with_self, without])


def test_means_of_integers_are_rounded_down():
    x, at, src = weft.tensor([0, 5]), weft.tensor([0, 0]), weft.tensor([-3, 1])
    assert x.scatter_reduce(0, at, src, "mean").tolist() == [-1, 5]
    with pytest.raises(InvalidInputError, match="unknown reduction"):
        x.scatter_reduce(0, at, src, "max")


def test_masked_scatter_takes_elements_in_order():
    x, mask = weft.zeros(2, 2), weft.tensor([[True, False], [True, True]])
    source = weft.tensor([1.0, 2.0, 3.0, 9.0], requires_grad=True)
    found = x.masked_scatter(mask, source)
    assert found.tolist() == [[1, 0], [2, 3]]
    found.sum().backward()
    assert source.grad.tolist() == [1, 1, 1, 0]
    with pytest.raises(IndexError, match="out of range"):
        x.masked_scatter(mask, weft.ones(2)).tolist()


def test_slices_and_diagonals_replaced():
    x = weft.zeros(2, 3)
    assert x.select_scatter(weft.ones(2), 1, 2).tolist() == [[0, 0, 1]] * 2
    assert x.slice_scatter(weft.ones(2, 2), 1, 0, None, 2).tolist() == [[1, 0, 1]] * 2
    assert x.diagonal_scatter(weft.ones(2), 1).tolist() == [[0, 1, 0], [0, 0, 1]]
    assert weft.diag_embed(weft.tensor([[1.0, 2.0]]), 1).tolist() == \
        [[[0, 1, 0], [0, 0, 2], [0, 0, 0]]]
    with pytest.raises(InvalidInputError, match="does not fit the diagonal"):
        x.diagonal_scatter(weft.ones(3))


def test_views_of_memory_write_through():
    x = weft.arange(6.0)
    part = x[1:].as_strided((2, 2), (2, 1))
    assert part.tolist() == [[1, 2], [3, 4]]
    part.mul_(10)
    assert x.tolist() == [0, 10, 20, 30, 40, 5]
    assert x[4:].as_strided((2,), (1,), 0).tolist() == [0, 10]
    with pytest.raises(InvalidInputError, match="outside of the memory"):
        x.as_strided((7,), (1,))
    with pytest.raises(weft.WeftError, match="one element in memory"):
        x.as_strided((2, 2), (1, 1)).add_(1)


def test_memory_read_as_another_dtype():
    x = weft.tensor([1.0, -2.0])
    bits = x.view(weft.int32)
    assert bits.tolist() == np.array([1.0, -2.0], np.float32).view(np.int32).tolist()
    bits[1] = 0
    x[0] = 0.0
    assert (x.tolist(), bits.tolist()) == ([0, 0], [0, 0])
    bits.fill_(0x3F800000)
    assert x.tolist() == [1.0, 1.0]
    with pytest.raises(InvalidInputError, match="another size"):
        x.view(weft.int64)


def test_a_fixed_number_of_places():
    x = weft.tensor([[1, 0], [0, 2]])
    assert weft.argwhere(x).tolist() == [[0, 0], [1, 1]]
    assert weft.nonzero_static(x, size=3).tolist() == [[0, 0], [1, 1], [-1, -1]]
