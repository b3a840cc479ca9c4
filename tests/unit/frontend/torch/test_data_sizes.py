"""Sizes that data determines: masks, nonzero, unique, bincount, numbers of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.frontend.torch.check import AsModule, normal
from weft.support.errors import InvalidModelError, UnsupportedModelError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def _pair(x: Any) -> tuple[Any, Any]:
    return x, x.T


def _doubled(x: Any, rows: Any) -> Any:
    return x.index_add(0, rows, x[rows])


CASES: dict[str, Callable[..., Any]] = {
    "mask": lambda x: x[x > 0],
    "equal masks have equal sizes": lambda x: x[x > 0] + x.exp()[x > 0],
    "mask of rows": lambda x: x[x.sum(1) > 0].softmax(0),
    "mask and index": lambda x: x[x.sum(1) > 0, 1],
    "masked_select": lambda x: torch.masked_select(x, x[0] > 0) * 2,
    "nonzero": lambda x: torch.nonzero(x > 0),
    "count alone": lambda x: x * torch.nonzero(x > 0).shape[0],
    "first rows": lambda x: x[x.sum(1) > 0][:2],
    "last rows": lambda x: x[x.sum(1) > 0][-2:],
    "view": lambda x: x[x.sum(1) > 0].view(-1, 2, 2).transpose(1, 2).reshape(-1),
    "square": lambda x: torch.matmul(*_pair(x[x.sum(1) > 0])).reshape(-1),
    "joined": lambda x: torch.cat([x[x.sum(1) > 0], x]),
    "write at mask": lambda x: x.index_put((x > 0,), x[x > 0], accumulate=True),
    "write at rows": lambda x: x.index_put((torch.where(x.sum(1) > 0)[0],), torch.ones(4)),
    "add to rows": lambda x: _doubled(x, torch.where(x.sum(1) > 0)[0]),
    "unique": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "unique rows": lambda x: torch.unique(x.sign(), dim=0, return_inverse=True),
    "runs": lambda x: torch.unique_consecutive(x.sign(), return_inverse=True, return_counts=True),
    "bincount": lambda x: torch.bincount(x.long().abs().reshape(-1), minlength=2),
    "repeats": lambda x: x.repeat_interleave(x[:, 0].abs().long() + 1, dim=0) * 2,
    "number": lambda x: x * x.max().item() + x.argmax().item(),
}


def _compiled(function: Callable[..., Any]) -> Any:
    return weft.compile(AsModule(function).eval(), example_inputs=(normal(6, 4),))


def _same(model: Any, function: Callable[..., Any], x: Any) -> None:
    wanted, got = function(x), model(x.numpy())
    wanted, got = (v if isinstance(v, tuple) else (v,) for v in (wanted, got))
    for mine, theirs in zip(got, wanted, strict=True):
        assert np.asarray(mine).dtype == theirs.numpy().dtype
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5, atol=1e-6)


# A count without a bound, of bincount and repeat_interleave, takes the virtual machine.
@pytest.mark.filterwarnings("ignore:kernels are compiled during calls")
@pytest.mark.sample(0.2, 4)
@pytest.mark.parametrize("case", CASES)
def test_a_compiled_program_gives_what_torch_gives(case: str) -> None:
    model = _compiled(CASES[case])
    for x in (normal(6, 4, seed=1) * 2, normal(6, 4, seed=2) * 2, -normal(6, 4).abs()):
        _same(model, CASES[case], x)


def _routed(x: Any, gate: Any, experts: Any) -> Any:
    """Each row goes to two experts."""
    weights, chosen = torch.softmax(x @ gate, -1).topk(2)
    result = torch.zeros_like(x)
    for number in range(3):
        rows, place = torch.where(chosen == number)
        made = (x[rows] @ experts[number]) * weights[rows, place, None]
        result = result.index_add(0, rows, made)
    return result


def test_experts_are_one_program_for_each_batch() -> None:
    batch = torch.export.Dim.DYNAMIC
    fixed = (normal(8, 3, seed=4), normal(3, 8, 8, seed=5))
    exported = torch.export.export(AsModule(_routed).eval(), (normal(6, 8), *fixed),
                                   dynamic_shapes=(({0: batch}, None, None),), strict=False)
    model = weft.compile(exported)
    for count in (5, 1, 17):
        x = normal(count, 8, seed=count)
        got = model(x.numpy(), *(w.numpy() for w in fixed))
        np.testing.assert_allclose(got, _routed(x, *fixed).numpy(), rtol=1e-4, atol=1e-5)


def test_a_number_with_a_bound_is_a_size() -> None:
    def first(x: Any) -> Any:
        count = x.abs().max().long().item()
        torch._check(count >= 0)
        torch._check(count <= 6)
        return x[:count] * 2, torch.ones(count, 2)

    _same(_compiled(first), first, normal(6, 4, seed=3))


def test_a_number_without_a_bound_is_no_size() -> None:
    def ones(x: Any) -> Any:
        count = x.long().abs().sum().item()
        torch._check(count >= 0)
        return torch.ones(count)

    with pytest.raises(UnsupportedModelError, match="without a bound") as caught:
        _compiled(ones)
    assert "torch._check" in str(caught.value)


def test_a_branch_on_data_is_refused_with_the_way_round() -> None:
    with pytest.raises(InvalidModelError, match=r"torch\.export") as caught:
        _compiled(lambda x: x + 1 if x.sum() > 0 else x - 1)
    assert "torch.cond" in str(caught.value)
