"""Elements at indices along an axis: no axes, other shapes, keywords."""

from __future__ import annotations

import pytest

import weft
from weft.support.errors import InvalidInputError


def test_a_tensor_without_axes_is_one_element():
    x, at = weft.tensor(2.0), weft.tensor(0)
    assert x.gather(0, at).item() == 2.0
    assert x.gather(0, weft.tensor([0, 0])).tolist() == [2.0, 2.0]
    assert x.index_select(0, weft.tensor([0])).item() == 2.0
    assert x.scatter(0, at, weft.tensor(5.0)).item() == 5.0
    assert x.scatter_add(0, at, x).item() == 4.0
    assert x.index_add(0, weft.tensor([0]), x).item() == 4.0
    assert x.index_fill(-1, weft.tensor([0]), 7.0).item() == 7.0


def test_indices_without_elements():
    x = weft.arange(6.0).reshape(2, 3)
    assert x.gather(1, weft.zeros((2, 0), dtype=weft.int64)).shape == (2, 0)
    assert x.scatter(1, weft.zeros((2, 0), dtype=weft.int64), 1.0).tolist() == x.tolist()


def test_take_along_dim_broadcasts_and_counts_from_the_end():
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert weft.take_along_dim(x, weft.tensor([[1, -1], [0, 1]]), 1).tolist() == [[2, 2], [3, 4]]
    assert weft.take_along_dim(x, weft.tensor([[0, 1]]), 1).tolist() == [[1, 2], [3, 4]]
    assert weft.take_along_dim(x, weft.tensor([3])).tolist() == [4]
    with pytest.raises(InvalidInputError, match="with the axes"):
        weft.take_along_dim(x, weft.tensor([0]), 0)


def test_scatter_reduces():
    x, at = weft.ones(3), weft.tensor([0, 0, 2])
    assert x.scatter(0, at, weft.full((3,), 2.0), reduce="add").tolist() == [5.0, 1.0, 3.0]
    assert x.scatter(0, at, value=4.0, reduce="multiply").tolist() == [16.0, 1.0, 4.0]
    with pytest.raises(InvalidInputError, match="unknown reduce"):
        x.scatter(0, at, x, reduce="mean")


def test_shapes_and_axes_by_keyword():
    x = weft.arange(4)
    assert weft.flip(x, dims=(0,)).tolist() == [3, 2, 1, 0]
    assert weft.reshape(input=x, shape=(2, 2)).tolist() == [[0, 1], [2, 3]]
    assert weft.cat(tensors=[x, weft.zeros(0, dtype=weft.int64)], axis=0).shape == (4,)
    assert weft.cat([weft.zeros(0), weft.ones(2, 1)], 1).shape == (2, 1)


def test_repeats_of_each_element():
    x = weft.tensor([1, 2])
    assert weft.repeat_interleave(x, weft.tensor([2, 3]), output_size=5).tolist() == [1, 1, 2, 2, 2]
    assert weft.repeat_interleave(weft.tensor([1, 2])).tolist() == [0, 1, 1]
    assert weft.repeat_interleave(x, weft.tensor([2])).tolist() == [1, 1, 2, 2]
