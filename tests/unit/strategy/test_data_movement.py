"""Schedules of kernels that move elements: values on odd shapes, and no choice in a hot loop."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import Tuple, var
from weft.tir.expr import Call, Select
from weft.tir.visitor import all_exprs

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])


def choices(func):
    """Expressions that take one of two values."""
    return [e for e in all_exprs(func.body) if isinstance(e, Select)
            or (isinstance(e, Call) and e.name == "if_then_else")]


def joined(shapes, axis):
    parts = [var(f"x{i}", shape) for i, shape in enumerate(shapes)]
    return primitive(parts, op.concatenate(Tuple(tuple(parts)), axis=axis))


@TARGETS
@pytest.mark.parametrize(("shapes", "axis"), [
    ([(3, 30), (3, 51), (3, 17)], 1),
    ([(1, 9, 5, 7), (1, 4, 5, 7), (1, 11, 5, 7)], 1),
    ([(2, 6, 33), (2, 1, 33)], 1),
    ([(7, 40), (2, 40)], 0),
])
def test_parts_of_a_concatenation_are_copied_by_loops_of_their_own(target, shapes, axis):
    assert choices(check(joined(shapes, axis), target).func) == []


@TARGETS
def test_short_rows_are_put_together_in_a_vector(target):
    check(joined([(9, 3), (9, 5), (9, 1)], 1), target)
