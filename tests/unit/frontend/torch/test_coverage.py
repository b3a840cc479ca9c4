"""Every operator of core ATen and prims is read, or there is a reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.frontend.torch.check import imported, integers, normal
from tests.unit.frontend.torch.direct import compare
from weft.transform import evaluate

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PAGE = Path(__file__).parents[4] / "docs" / "pytorch.md"


def test_no_operator_is_unaccounted_for() -> None:
    from weft.frontend.torch.coverage import REFUSED, covered

    found = covered()
    assert [one.name for one in found if not one.how] == []
    names = {one.name.rpartition(".")[0] for one in found}
    assert set(REFUSED) - names == set()


def test_the_page_has_the_counts() -> None:
    from weft.frontend.torch.coverage import coverage_lines

    text = PAGE.read_text()
    assert [line for line in coverage_lines() if line not in text] == []


def test_prims_compute_what_torch_computes() -> None:
    from weft.frontend.torch.aten.prims import _OF_TWO, PRIMS

    x, y = normal(3, 4).abs() / 3 + 0.2, normal(3, 4, seed=1).abs() + 0.1
    whole = integers(3, 4, low=1), integers(3, 4, low=1, seed=1)
    takes_integers = ("bitwise", "shift", "gcd")
    for name in PRIMS:
        prim = getattr(torch.ops.prims, name).default
        one, two = whole if name.startswith(takes_integers) else (x, y)
        if name in _OF_TWO:
            compare(prim, one, two)
        elif name not in ("cat", "reshape", "rev", "transpose", "where", "clone", "acosh"):
            compare(prim, one)
    compare(torch.ops.prims.transpose.default, x, [1, 0])
    compare(torch.ops.prims.broadcast_in_dim.default, x, [2, 3, 4], [1, 2])


def test_random_numbers_come_from_a_key() -> None:
    def drawn(x: Any) -> Any:
        return (x + torch.rand(5, 4), torch.randn_like(x), torch.randperm(9),
                torch.bernoulli(x.sigmoid()))

    mod = imported(drawn, (normal(5, 4),))
    assert mod.attrs["input_names"][-1] == "key"
    x, key = normal(5, 4).numpy(), np.array([1, 2], np.uint32)
    uniform, normals, order, coins = evaluate(mod, [x, key])
    assert ((uniform - x >= 0) & (uniform - x <= 1)).all()
    assert normals.dtype == np.float32
    assert sorted(order.tolist()) == list(range(9))
    assert set(np.unique(coins)) <= {0.0, 1.0}
