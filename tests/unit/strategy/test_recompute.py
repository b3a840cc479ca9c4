"""What a group would compute many times is computed once, and what is cheap stays inlined."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import var


def row_scales():
    """exp of one number a row, multiplied over long rows."""
    x, s = var("x", (6, 2000), "float32"), var("s", (6, 1), "float32")
    return primitive([x, s], op.multiply(x, op.exp(s)))


def interpolation():
    """What is interpolated along one axis is read for many elements of the other."""
    x, share = var("x", (2, 9, 12), "float32"), var("share", (300,), "float32")
    low, high = (var(name, (300,), "int64") for name in ("low", "high"))
    down = var("down", (54,), "int64")
    across = op.add(op.multiply(op.take(x, low, axis=2), share),
                    op.divide(op.take(x, high, axis=2), op.add(share, share)))
    return primitive([x, share, low, high, down], op.take(across, down, axis=1))


def cheap_broadcast():
    x, b = var("x", (64, 500), "float32"), var("b", (500,), "float32")
    return primitive([x, b], op.add(x, op.nn.relu(b)))


def scratch_bytes(kernel) -> int:
    return kernel.func.attrs.get("workspace_bytes", 0)


@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU])
@pytest.mark.parametrize("make", [row_scales, interpolation])
def test_elements_that_are_read_often_have_memory(make, target):
    assert scratch_bytes(check(make(), target)) > 0


@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU])
def test_cheap_elements_are_computed_where_they_are_read(target):
    assert scratch_bytes(check(cheap_broadcast(), target)) == 0
