"""Tensors against torch: promotion, values, gradients, indexing, protocols."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64")


@pytest.mark.slow
def test_promotion_of_all_pairs_of_dtypes_with_and_without_axes() -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        for shape_a, shape_b in itertools.product(((2,), ()), repeat=2):
            expected = (torch.ones(shape_a, dtype=getattr(torch, a))
                        * torch.ones(shape_b, dtype=getattr(torch, b))).dtype
            got = (weft.ones(shape_a, dtype=a) * weft.ones(shape_b, dtype=b)).dtype
            assert got == str(expected), (a, shape_a, b, shape_b)
        assert weft.promote_types(weft.ones(1, dtype=a).dtype, weft.ones(1, dtype=b).dtype) == str(
            torch.promote_types(getattr(torch, a), getattr(torch, b)))


@pytest.mark.parametrize("number", [True, 2, 2.5])
def test_promotion_with_numbers(number: Any) -> None:
    for name, shape in itertools.product(DTYPES, ((2,), ())):
        x, t = weft.ones(shape, dtype=name), torch.ones(shape, dtype=getattr(torch, name))
        assert (x * number).dtype == str((t * number).dtype), (name, shape)
        assert (number * x).dtype == str((number * t).dtype), (name, shape)
        assert (x / 2).dtype == str((t / 2).dtype), (name, shape)
        assert (x < number).dtype == "bool"


X = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=(4, 1)).astype(np.float32)
# Each is evaluated with ``x``, ``y`` tensors of one library, and ``lib`` the library itself.
VALUES = """
x + y; x - 2; 2 - x; x * y; x / 3; 1 / (x + 4); x // 0.7; x % 0.7; x ** 2; x ** 3; 2 ** x
(x.abs() + 1) ** 0.5; -x; abs(x); x > y; x == x; x != y; x.exp().log(); x.sigmoid(); x.tanh()
x.sum(); x.sum(1); x.sum((0, 2)); x.sum(-1, keepdim=True); x.mean(); x.mean((1, 2)); x.max()
x.min(); x.max(1)[0]; x.max(1)[1]; x.min(-1, keepdim=True)[1]; x.argmax(); x.argmin(2)
x.argmax(1, keepdim=True); x.var(); x.var(1); x.std(0, unbiased=False); x.norm(); x.norm(1, 2)
x.prod(2); x.cumsum(1); x.softmax(1); x.log_softmax(-1); x.logsumexp(2); x.logsumexp((0, 1))
x.reshape(4, 15); x.view(-1, 5); x.permute(2, 0, 1); x.transpose(0, 2); x[0].t(); x.flatten(1)
x.unsqueeze(1); x.unsqueeze(-1); x[:1].squeeze(); x[:1].squeeze(0); y.expand(3, 4, 5)
x.flip(0, 2); x.roll(1, 1); x.roll((1, 2), (0, 2)); lib.cat([x, x], 1); lib.stack([x, x], -1)
x.repeat(2, 1, 1); x.repeat_interleave(2, 1); x.split(2, 1)[1]; x.split([1, 3], 1)[1]
x.chunk(3, 2)[2]; x.unbind(1)[2]; x[1]; x[-1]; x[:, 1:3]; x[..., ::2]; x[0, :, 1]; x[:, None, 1]
x[1:1]; x[[0, 2]]; x[:, [1, 3]]; x[[0, 1], [2, 3]]; x[[0, 1], :, [2, 3]]; x[:, [0, 1], [2, 3]]
x[x > 0]; x[lib.tensor([[0, 1], [2, 0]])]; x[0][lib.tensor([True, False, True, False])]
lib.swapaxes(x, 0, 2); x.moveaxis(0, 2); lib.adjoint(x); lib.t(x[0]); lib.fill(x, 2.5)
lib.clone(x, memory_format=lib.contiguous_format); lib.detach(x); x[0].clone().fill_diagonal_(7)
lib.zeros(7, 2).fill_diagonal_(3, wrap=True); x.clone().resize_(2, 3); lib.relu_(x.clone())
lib.geqrf(x[0])[0]; lib.geqrf(x)[1]; lib.ormqr(*lib.geqrf(x), x, True, True)
lib.linalg.lu_factor(x)[0]
lib.ormqr(*lib.geqrf(x[:, :, :3]), x.mT, left=False); lib.constant_pad_nd(x, (1, 2), 0.5)
lib.native_layer_norm(x, (5,), None, None, 1e-5)[2]; lib.embedding(x[0], lib.tensor([3, 0]), 3)
lib.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[1]; lib.pdist(x[0])
lib.batch_norm(x, y[:, 0], None, None, None, True, 0.1, 1e-5, False); lib.avg_pool1d(x, 2)
lib.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False); lib.layer_norm(x, (5,))
lib.group_norm(x, 2); lib.grid_sampler(x[:, None], x.reshape(3, 5, 2, 2), 0, 1, True)
(lambda u, s, v: (u * s) @ v.mT)(*lib.svd_lowrank(x[0], 4)); lib.matrix_power(x[0] @ x[0].mT, 3)
(lambda u, s, v: (u * s) @ v.mT)(*lib.pca_lowrank(x[0].mT, 4))
x[..., [0, 1]]; x[1, [0, 2]]; x[:, 1, [0, 2]]; x.gather(1, lib.tensor([[[0, 1, 2, 3, 0]]] * 3))
x.index_select(1, lib.tensor([3, 0])); x.clamp(-0.5, 0.5); x.clamp(min=0)
x.masked_fill(x > 0, 9.0); lib.where(x > 0, x, y); x.tril(); x.triu(1)
x.matmul(x.transpose(1, 2)); x @ x[0].t(); x[0] @ x[0, 0]; x[0, 0] @ x[0].t(); x[0, 0] @ x[0, 1]
lib.einsum("bij,bkj->bik", x, x); lib.outer(x[0, 0], x[0, 1]); x.sort(1)[0]
x.sort(2, descending=True)[1]; x.topk(2, 1)[0]; x.topk(2, -1, largest=False)[1]; x.any(); x.all(1)
x.round(); x.floor(); x.ceil(); x.trunc(); x.sign(); x.long(); x.int() + 1; (x > 0).sum()
x.isnan(); x.diagonal(0, 1, 2); lib.arange(5); lib.arange(1, 2, 0.25); lib.linspace(0, 1, 5)
lib.eye(3); lib.zeros(2, 3); lib.ones((2,)); lib.full((2,), 7); lib.zeros_like(x)
lib.ones(2, dtype=lib.int32); x.amax((0, 1)); x.lerp(y, 0.3); x.addcmul(x, x, value=0.5)
x.movedim(0, 2); x.scatter(1, lib.tensor([[[1] * 5]] * 3), 0.0); x.unflatten(1, (2, 2))
x.fmod(0.7); x.nan_to_num(); lib.logical_not(x > 0); (x > 0) & (y > 0); ~(x > 0)
(x > 0) | (y > 0); (x > 0) ^ (y > 0); x.atan2(x + 2); x.expm1(); x.log1p().isnan()
x.rsqrt().isnan()
"""
EXPRESSIONS = [e.strip() for line in VALUES.strip().splitlines() for e in line.split(";")]


def run(expression: str, lib: Any, *, known: bool) -> Any:
    x, y = lib.tensor(X), lib.tensor(Y)
    if not known:  # in weft, a call that has not run
        x, y = x * 1.5, y - 0.5
    return eval(expression, {"x": x, "y": y, "lib": lib, "abs": abs})


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_values_dtypes_and_shapes_of_expressions(known: bool) -> None:
    """All at once: one program instead of one for each expression."""
    # Parts of a known tensor are taken by NumPy, without a program.
    expressions = [e for e in EXPRESSIONS if not known or e.startswith("x[")]
    results = [run(e, weft, known=known) for e in expressions]
    wrong = []
    for expression, got in zip(expressions, results, strict=True):
        expected = run(expression, torch, known=known)
        same = got.dtype == str(expected.dtype) and tuple(got.shape) == tuple(expected.shape)
        if not same or not np.allclose(got.numpy(), expected.numpy(), rtol=2e-5, atol=2e-6):
            wrong.append((expression, got, expected))
    assert not wrong, wrong[:3]


DIFFERENTIABLE = """
(x * y).sum(); (x / (y.abs() + 1)).sum(); x.tanh().mean(); (x ** 3).sum(); x.softmax(1)[0].sum()
x.log_softmax(-1)[:, 0].sum(); x.max(1)[0].sum(); x.amax().sum(); x.var(); x.norm()
x[1:, [0, 2]].sum(); (x[[0, 0, 1]] * 3).sum()
x.gather(1, lib.tensor([[[0, 1, 2, 3, 0]]] * 3)).sum(); x.clamp(-0.5, 0.5).sum()
(x @ x.transpose(1, 2)).pow(2).sum(); lib.cat([x, x * 2], 1)[0].sum()
lib.stack([x, y.expand(3, 4, 5)])[1].sum(); lib.where(x > 0, x, y).sum(); x.split(2, 1)[1].sum()
x.unbind(0)[1].exp().sum(); x.cumsum(1).pow(2).sum(); x.permute(1, 2, 0).reshape(5, 12)[1].sum()
x.logsumexp(2).sum(); x.prod(2).sum(); x.abs().sqrt().sum(); x.topk(2, 1)[0].sum()
x.sort(1)[0][0].sum(); x.std(0).sum(); lib.einsum("bij,jk->bik", x, y.t().expand(5, 4)).sum()
x.masked_fill(x > 0, 0.0).sum(); x.expand(2, 3, 4, 5).sum(); x.mean((0, 2)).prod(); x[x > 0].sum()
x.sigmoid().log().sum(); x.relu().sum(); x.tril().sum(); x.diagonal(0, 1, 2).sum()
x.flip(1)[0, 0].sum()
"""


def gradient(expression: str, lib: Any) -> list[Any]:
    x, y = lib.tensor(X, requires_grad=True), lib.tensor(Y, requires_grad=True)
    eval(expression, {"x": x, "y": y, "lib": lib}).backward()
    return [x.grad, y.grad]


@pytest.mark.slow
def test_gradients_of_expressions() -> None:
    expressions = [e.strip() for line in DIFFERENTIABLE.strip().splitlines()
                   for e in line.split(";")]
    results = [gradient(e, weft) for e in expressions]
    for expression, got in zip(expressions, results, strict=True):
        for a, b in zip(got, gradient(expression, torch), strict=True):
            assert (a is None) == (b is None), expression
            if b is not None:
                np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=3e-4, atol=3e-5,
                                           err_msg=expression)


CHANGES = """
x[0].zero_(); x[1, 2].add_(1); x.detach().mul_(2); x.data.zero_(); x[1:][0].fill_(3)
x[:, 1][0] += 1
x[0] = 1.0; x[:, 1] = y[1]; x[x > 0] = 0.0; x[[0, 2], 1] = y[0]; x += 1; x.mul_(2)
x[..., ::2] *= 3; x.zero_(); x.fill_(2.5); x.clamp_(0, 1); x.copy_(y); x[1:, :2] = x[:2, 2:]
x[:, [0, 2]] = 7; x.masked_fill_(x > 0, 5.0); x.addcmul_(x, x, value=2); x[0, 1, 2] = 9
x[None, 0] = 3; x[::2, 1:3] = y[:2]; x.index_add_(1, lib.tensor([0, 0]), x[:, :2] * 1)
x[lib.tensor([[True, False, True, True]] * 3)] = 4.0
"""


def changed(change: str, lib: Any, *, known: bool) -> Any:
    x, y = lib.tensor(X), lib.tensor(Y)
    if not known:  # in weft, a call that has not run
        x, y = x * 1.5, y - 0.5
    exec(change, {"x": x, "y": y, "lib": lib})
    return x


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_changes_in_place(known: bool) -> None:
    changes = [c.strip() for line in CHANGES.strip().splitlines() for c in line.split(";")]
    results = [changed(change, weft, known=known) for change in changes]
    for change, got in zip(changes, results, strict=True):
        expected = changed(change, torch, known=known)
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-6, atol=1e-6,
                                   err_msg=change)


def test_second_derivatives() -> None:
    for lib in (weft, torch):
        x = lib.tensor([0.5, 2.0], requires_grad=True)
        (first,) = lib.autograd.grad((x ** 3).sum(), x, create_graph=True)
        (second,) = lib.autograd.grad((first * first).sum(), x)
        np.testing.assert_allclose(second.numpy(), 36 * np.array([0.5, 2.0]) ** 3, rtol=1e-6)
