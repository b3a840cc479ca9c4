"""Writes at positions: every reduction, dtype and form of index."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontend.torch.check import check, integers, normal, torch

pytestmark = pytest.mark.torch
REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8], ids=str)
def test_reductions_into_places(dtype):
    def all_of(x, i, y, line):
        results = []
        for kind in REDUCTIONS:
            for include in (True, False):
                results.append(x.scatter_reduce(0, i, y, kind, include_self=include))
                if kind != "sum":
                    results.append(x.index_reduce(1, line, y[:4, :2], kind,
                                                  include_self=include))
        return (*results, x.scatter(1, i, y), x.scatter(1, i, y, reduce="add"),
                x.scatter(0, i, 2, reduce="multiply"), x.scatter_add(0, i, y),
                x.index_add(1, line, y[:4, :2], alpha=3), x.index_fill(1, line, 1))

    check(all_of, integers(4, 5, low=0, high=9).to(dtype), integers(4, 3, low=0, high=4, seed=1),
          integers(4, 3, low=0, high=9, seed=2).to(dtype), torch.tensor([3, 0]), rtol=1e-5)


def test_places_of_every_form():
    def all_of(x, i, j, mask, values):
        rows = values[:, None]
        return (x.index_put((i, j), rows), x.index_put((i, j), rows, accumulate=True),
                torch.ops.aten.index_put(x, [None, i, j], torch.tensor(2.0)),
                torch.ops.aten.index_put(x, [i, None, j], values[:, None]),
                torch.ops.aten.index_put(x, [None, i], values[0].expand(3)[:, None]),
                x.index_put((mask,), torch.tensor(3.0)),
                x.put(i, values, accumulate=True), x.put(-i - 1, values), x.take(i),
                x.masked_scatter(mask[..., None], x * 2),
                x.masked_scatter(x > 0, torch.arange(60.0)))

    check(all_of, normal(3, 4, 5), torch.tensor([0, 2, -1]), torch.tensor([1, 1, 0]),
          normal(3, 4) > 0, normal(3, 1, seed=4).expand(3, 5)[:, 0])


def test_a_mask_takes_its_values_in_order():
    mask = normal(3, 4) > 0
    hits = int(mask.sum())

    def all_of(x, y):
        return (torch.ops.aten.index_put(x, [mask], y),
                torch.ops.aten.index_put(x, [mask], y, True),
                torch.ops.aten.index_put(x, [mask], y[0]),
                torch.ops.aten.index_put(x[..., 0], [mask], y[:, 0]))

    check(all_of, normal(3, 4, 2), normal(hits, 2, seed=1))


def test_writes_into_views():
    def all_of(x, y):
        return (torch.slice_scatter(x, y[:2], 0, 0, 4, 2), torch.slice_scatter(x, y[:1], 0, -2, -1),
                torch.slice_scatter(x, x[:, 1:4], 1, 1, 4), torch.select_scatter(x, y[0], 0, -1),
                torch.diagonal_scatter(x, y[0, :4]), torch.diagonal_scatter(x, y[0, :3], -1),
                torch.diagonal_scatter(x, y[0, :4], 1), torch.as_strided(x, (3, 2), (1, 5), 2),
                torch.as_strided_scatter(x, y[:2, :2], (2, 2), (6, 1), 3),
                x.t().contiguous().as_strided((5, 4), (4, 1)),
                torch.tril_indices(4, 3, -1), torch.triu_indices(3, 4, 1))

    check(all_of, normal(4, 5), normal(4, 5, seed=1))


@pytest.mark.parametrize("seed", range(3))
def test_random_places(seed):
    generator = np.random.default_rng(seed)
    rank = int(generator.integers(1, 4))
    shape = tuple(generator.integers(1, 5, rank))
    axis = int(generator.integers(-rank, rank))
    taken = tuple(int(generator.integers(1, n + 1)) for n in shape)
    places = torch.from_numpy(generator.integers(0, shape[axis], taken))
    line = torch.from_numpy(generator.permutation(shape[axis])[:2])

    def all_of(x, i, n):
        y = torch.ones(taken)
        return (x.gather(axis, i), x.scatter(axis, i, 7.0), x.scatter_add(axis, i, y),
                x.index_select(axis, n), x.index_add(axis, n, x.index_select(axis, n)),
                x.index_copy(axis, n, x.index_select(axis, n) * 2), x.logcumsumexp(axis),
                *x.cummax(axis), x.argsort(dim=axis, stable=True))

    check(all_of, normal(*shape), places, line)


def test_segments():
    def all_of(x, lengths):
        return tuple(torch.segment_reduce(x, kind, lengths=lengths, axis=0, unsafe=True,
                                          initial=start)
                     for kind in ("sum", "mean", "max", "min", "prod") for start in (None, 1.0))

    check(all_of, normal(6, 2), torch.tensor([2, 0, 4]))


def test_looked_up_rows_are_shortened():
    check(lambda w, i: torch.nn.functional.embedding(i, w.clone(), max_norm=0.5),
          normal(6, 4), torch.tensor([1, 3, 1]))


def test_the_gradient_of_values_behind_a_mask():
    def all_of(dy, mask):
        return torch.ops.aten.masked_scatter_backward(dy, mask, [4, 5])

    check(all_of, normal(3, 4), normal(3, 4, seed=1) > 0)
