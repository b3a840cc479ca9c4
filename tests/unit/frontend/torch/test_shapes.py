"""Operators that move elements, reduce them, or read and write at positions."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, integers, normal, torch

pytestmark = pytest.mark.torch
F = torch.nn.functional


def test_views_and_permutations():
    def all_of(x):
        return (x.view(6, -1), x.reshape(-1), x.flatten(1), x.permute(2, 0, 1), x.transpose(-1, 0),
                x[0].t(), x.unsqueeze(-1), x[:, :1].squeeze(1), x[:1].squeeze(),
                x[:, :1].expand(-1, 5, -1), x[0, 0].expand(2, 3, 4), x.unfold(2, 2, 2).sum(-1),
                x.swapaxes(0, 1), x.movedim(0, -1))

    check(all_of, normal(2, 3, 4))


def test_slices_and_joins():
    def all_of(x):
        a, b = x.split(2, dim=1)
        parts = x.chunk(3, dim=2)
        return (x[:, 1:], x[..., ::2], x[-1], x[:, -2:-1], x[5:], torch.cat([a, b], 1),
                torch.stack([x, x * 2], -1), *parts, *x.unbind(0), *x.split([1, 3, 2], 2),
                x.narrow(1, 1, 2), torch.cat([x, x.int()], 0), x.select(1, -1))

    check(all_of, normal(2, 3, 6))


def test_repeats_and_turns():
    def all_of(x):
        return (x.flip(0, 2), x.roll(1, 2), x.roll((1, -1), (0, 1)), x.roll(5),
                x.repeat(2, 1, 1, 2), x.repeat_interleave(3, 1), x.repeat_interleave(2),
                x.tile(2), x.tril(), x.triu(1), x.diagonal(0, 1, 2), x[0].diagonal(-1),
                torch.rot90(x))

    check(all_of, normal(2, 3, 4))


def test_padding():
    def all_of(x):
        return (F.pad(x, (1, 2)), F.pad(x, (1, 0, 2, 1), value=3.0), F.pad(x, (-1, 2)),
                F.pad(x[0], (1, 2), mode="reflect"), F.pad(x, (2, 0, 1, 1), mode="replicate"),
                F.pad(x, (1, 1, 2, 0), mode="reflect"))

    check(all_of, normal(1, 2, 3, 4))


def test_creation():
    def all_of(x):
        n = x.shape[0]
        return (torch.zeros(n, 2), torch.full((2, 3), 7), torch.full_like(x, 2.0),
                torch.ones_like(x), torch.arange(n), torch.arange(1, 6, 2), torch.eye(3),
                torch.arange(0.0, 1.0, 0.25), torch.linspace(0, 1, 5), x.new_zeros(2),
                torch.tensor(3.5), torch.eye(2, 3),
                F.one_hot(torch.arange(3), 5), torch.zeros(100, 100))

    check(all_of, normal(4, 2))


def test_reductions():
    def all_of(x, i):
        values, places = x.max(1)
        return (x.sum(), x.sum(1), x.sum((0, 2), keepdim=True), i.sum(), x.mean(), x.mean(-1),
                x.prod(1), x.amax(0), x.amin((1, 2)), x.max(), values, places, x.min(2).values,
                x.argmax(), x.argmax(1), x.argmin(2, keepdim=True), x.var(1), x.std(),
                x.var((0, 1), correction=0), *torch.var_mean(x, 2), (x > 0).any(),
                torch.ops.aten._is_all_true(x > 0), torch.ops.aten._is_any_true(x > 0),
                (x > -9).all(1),
                x.cumsum(1), i.cumsum(0), x.cumprod(2), x.norm(), x.norm(1, dim=1),
                torch.linalg.vector_norm(x, float("inf"), dim=0), x.logsumexp(1), (x > 0).sum(),
                i.max(), x.mean((1, 2), keepdim=True), i.float().mean(), x[:, :0].any(1),
                torch.count_nonzero(i))

    check(all_of, normal(2, 3, 4), integers(3, 4))


def test_indices():
    def all_of(x, i, j):
        return (x[i], x[:, j], x[i[:, None], j], x[i, :, j], x[:, i, j], x[..., -j],
                torch.gather(x, 1, j.view(1, -1, 1).expand(3, -1, 5)), x.index_select(2, i),
                F.embedding(i, x[:, :, 0]), x.take_along_dim(j.view(-1, 1, 1), 0))

    check(all_of, normal(3, 3, 5), torch.tensor([2, 0, 1]), torch.tensor([1, 2, 0]))


def test_writes():
    def all_of(x, i, v):
        a = x.clone()
        a[:, 1] = 0
        b = x.clone()
        b[0, 1:3] = v[0, :2]
        c = x.clone()
        c[x > 0] = -1.0
        d = x.scatter(1, i.view(1, -1).expand(3, -1), v)
        return (a, b, c, d, x.scatter(0, i.view(1, 3), 9.0), x.index_add(0, i, v, alpha=2),
                x.scatter_add(1, i.view(1, -1).expand(3, -1), v), x.index_copy(0, i, v),
                x.index_copy(1, i, v[:, :3]), x.index_put((i,), v), x.index_put((i, i), v[0, :3]),
                x.index_put((i,), v, accumulate=True),
                x.scatter_reduce(1, i.view(1, -1).expand(3, -1), v, "amax"))

    check(all_of, normal(3, 4), torch.tensor([2, 0, 1]), normal(3, 4, seed=1))


def test_orders():
    def all_of(x):
        values, places = x.topk(2, dim=1)
        small, small_places = x.topk(3, largest=False)
        rows, order = x.sort(dim=0, descending=True)
        return (values, places, small, small_places, rows, order, x.argsort(1),
                x.sort(stable=True, dim=-1).values)

    check(all_of, normal(3, 5))
