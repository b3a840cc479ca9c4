"""Distances, sampling at positions of a grid, bags of rows, and sums of products."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, integers, normal, torch, uniform

pytestmark = pytest.mark.torch
aten = torch.ops.aten
F = torch.nn.functional
ORDERS = [0.0, 0.7, 1.0, 2.0, 3.5, float("inf")]


@pytest.mark.parametrize("order", ORDERS)
def test_distances_and_their_gradients(order):
    x, y = normal(2, 4, 3), normal(2, 5, 3, seed=1)
    y[0, 0] = x[0, 1]
    distance = aten._cdist_forward(x, y, order, None)
    check(lambda g, a, b, d: (aten._cdist_forward(a, b, order, None),
                              aten._cdist_backward(g, a, b, order, d)),
          normal(2, 4, 5, seed=2), x, y, distance, rtol=1e-4, atol=1e-5)
    pairs = F.pdist(x[0], order)
    check(lambda g, a, d: (aten._pdist_forward(a, order), aten._pdist_backward(g, a, order, d)),
          normal(6, seed=3), x[0], pairs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", [0, 1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_grid_sampling_and_its_gradients(method, padding):
    x, grid = normal(2, 3, 4, 5), uniform(2, 3, 4, 2, low=-1.7, high=1.7, seed=1)
    grad = normal(2, 3, 3, 4, seed=2)
    for corners in (False, True):
        options = (method, padding, corners)
        check(lambda g, a, b, o=options: (aten.grid_sampler_2d(a, b, *o),
                                          *aten.grid_sampler_2d_backward(g, a, b, *o,
                                                                         [True, True])),
              grad, x, grid, rtol=1e-4, atol=1e-4)


def test_grid_sampling_of_volumes():
    x, grid = normal(1, 2, 3, 4, 5), uniform(1, 2, 3, 2, 3, low=-1.3, high=1.3, seed=1)
    check(lambda g, a, b: (aten.grid_sampler_3d(a, b, 0, 0, False),
                           *aten.grid_sampler_3d_backward(g, a, b, 0, 0, False, [True, True])),
          normal(1, 2, 2, 3, 2, seed=2), x, grid, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_rows(mode):
    """Empty bags, rows of padding, and a last offset that is the end."""
    weight, indices = normal(7, 3), integers(9, low=0, high=7)
    offsets, padding = torch.tensor([0, 0, 3, 5, 5, 9]), int(indices[4])
    check(lambda w, i, o: (F.embedding_bag(i, w, o, mode=mode),
                           F.embedding_bag(i, w, o, mode=mode, include_last_offset=True),
                           F.embedding_bag(i, w, o, mode=mode, padding_idx=padding)),
          weight, indices, offsets)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_gradients_of_bags_of_rows(mode):
    weight, indices, offsets = normal(7, 3), integers(9, low=0, high=7), torch.tensor([0, 3, 3, 8])
    found = aten._embedding_bag(weight, indices, offsets, False, mode)
    check(lambda g, i, o, *saved: aten._embedding_bag_backward(
        g, i, o, *saved, 7, False, mode, False, None), normal(4, 3, seed=1), indices, offsets,
        *found[1:])


def test_gradients_of_factors_of_rows():
    weight, indices, offsets = normal(7, 3), integers(9, low=0, high=7), torch.tensor([0, 3, 3, 8])
    factors = normal(9, seed=2)
    found = aten._embedding_bag(weight, indices, offsets, False, 0, False, factors)
    check(lambda g, w, i, o, owner: aten._embedding_bag_per_sample_weights_backward(
        g, w, i, o, owner, 0), normal(4, 3, seed=1), weight, indices, offsets, found[1])
    check(lambda g, i, o, f, *saved: aten._embedding_bag_backward(
        g, i, o, *saved, 7, False, 0, False, f), normal(4, 3, seed=1), indices, offsets, factors,
        *found[1:])


def test_products_added_to():
    """With beta 0 the term added is not read, so NaN in it does not show."""
    nan = torch.full((3,), float("nan"))
    stack = normal(4, 3, 2, seed=1)
    check(lambda m, v, n, a, b: (torch.addmv(n, m, v, beta=0), torch.addmv(v, m, v, beta=0.5,
                                                                         alpha=2),
                                 torch.addbmm(n, a, b, beta=0), torch.addbmm(v, a, b, alpha=-1)),
          normal(3, 3), normal(3, seed=2), nan, stack, normal(4, 2, 3, seed=3))
    check(F.bilinear, normal(2, 3), normal(2, 4, seed=1), normal(5, 3, 4, seed=2),
          normal(5, seed=3))
