"""Elementwise kernels over fused axes walk memory in a straight line, whatever the shape."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import var

# Rows that vectors cross, with and without a size that makes the outer quotient simpler.
SHAPES = [(1, 4, 12, 12), (20, 12, 100), (5, 17, 16, 33), (3, 16, 12), (5, 1, 16, 24, 17),
          (12, 9, 32, 24), (10, 9, 28, 2), (7, 8, 14), (3, 5, 7, 16)]


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
def test_no_division_is_left(target, shape) -> None:
    x = var("x", shape)
    kernel = check(primitive([x], op.sqrt(op.abs(x))), target)
    stores = [line for line in str(kernel.func).splitlines() if "] = sqrt(" in line]
    assert stores
    assert not any("//" in store or "%" in store for store in stores)
