"""Control flow of torch: cond, while_loop, scan, map, associative_scan, checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.frontend.torch.check import AsModule, check, imported, normal
from weft.support.errors import UnsupportedModelError

torch = pytest.importorskip("torch")
from torch._higher_order_ops import associative_scan, scan, while_loop  # noqa: E402 - after skip
from torch._higher_order_ops import map as map_rows  # noqa: E402

pytestmark = pytest.mark.torch


def _branches(x: Any) -> Any:
    def above(x: Any) -> Any:
        return torch.cond(x.max() > 1, lambda x: (x * 3, x.sum()), lambda x: (x * 2, x.sum() + 1),
                          (x,))

    return torch.cond(x.sum() > 0, above, lambda x: (x - 1, x.max()), (x,))


def _steps(x: Any) -> Any:
    """The number of steps of Collatz's sequence, which the data decides."""
    def following(n: Any, count: Any) -> Any:
        return torch.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    first = x.abs().sum().long() + 2
    return while_loop(lambda n, _: n > 1, following, (first, torch.zeros((), dtype=torch.int64)))


def _roots(x: Any) -> Any:
    def better(i: Any, y: Any) -> Any:
        return i + 1, 0.5 * (y + x.abs() / y)

    start = torch.zeros((), dtype=torch.int64), torch.ones_like(x)
    return while_loop(lambda i, _: i < 5, better, start)


def _sums(x: Any) -> Any:
    return scan(lambda total, row: (total * 0.5 + row, total * row), torch.zeros(4), x)


def _rows(x: Any) -> Any:
    return map_rows(lambda row, y: row * 2 + y, x, x[0].clone())


def _linear_recurrence(x: Any) -> Any:
    return associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, x + 1), 0,
                            combine_mode="generic")


def _again(x: Any) -> Any:
    return torch.utils.checkpoint.checkpoint(lambda y: torch.relu(y) * 2, x, use_reentrant=False)


CASES: list[Callable[..., Any]] = [_branches, _steps, _roots, _sums, _rows, _linear_recurrence,
                                   _again]


@pytest.mark.sample(0.4, 3)
@pytest.mark.parametrize("function", CASES, ids=[f.__name__ for f in CASES])
def test_control_flow_gives_what_torch_gives(function: Callable[..., Any]) -> None:
    check(function, normal(5, 4))


def test_both_branches_run() -> None:
    check(_branches, -normal(5, 4).abs())
    check(_branches, normal(5, 4).abs() / 9)


def test_a_scan_is_one_program_for_each_length() -> None:
    axes = (({0: torch.export.Dim.DYNAMIC},),)
    exported = torch.export.export(AsModule(_sums).eval(), (normal(5, 4),), dynamic_shapes=axes,
                                   strict=False)
    model = weft.compile(exported)
    for length in (5, 1, 9):
        x = normal(length, 4)
        for got, wanted in zip(model(x.numpy()), _sums(x), strict=True):
            np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_gradients_go_through_branches_and_loops() -> None:
    def loss(x: Any) -> Any:
        return _branches(x)[0].sum() + _roots(x)[1].sum()

    x = normal(3, 4).requires_grad_()
    loss(x).backward()
    (gradient,) = weft.compile(weft.grad(imported(loss, (x.detach(),))))(x.detach().numpy())
    np.testing.assert_allclose(gradient, x.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_an_error_names_operators_of_bodies_and_the_line_of_the_call() -> None:
    class Drawn(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, torch.poisson, lambda x: x - 1, (x,))

    with pytest.raises(UnsupportedModelError) as caught:
        imported(Drawn(), (normal(4),))
    (note,) = caught.value.notes
    assert "aten.poisson" in note
    assert "test_control_flow.py" in note


def test_a_body_draws_no_numbers() -> None:
    class Drawn(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond(x.sum() > 0, lambda x: x + torch.rand(4), lambda x: x - 1, (x,))

    with pytest.raises(UnsupportedModelError, match="random numbers in a branch"):
        imported(Drawn(), (normal(4),))
