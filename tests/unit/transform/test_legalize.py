"""Legalization: calls rewritten by the target's hooks."""

from __future__ import annotations

from tests.unit.transform.helpers import check_example, parse_program
from weft import op
from weft.ir.passes import PassContext
from weft.transform.passes.legalize import Legalize


def square(call, types, context):
    base, exponent = call.args
    return op.multiply(base, base) if getattr(exponent, "data", 0) == 2 else None


CONTEXT = PassContext(config={"legalize": {"power": square}})


def test_example() -> None:
    check_example(Legalize(), CONTEXT)


def test_without_hooks_nothing_changes() -> None:
    module = parse_program("def @main(%x: Tensor[(2,), float32]) { power(%x, 2f) }")
    assert Legalize()(module) is module


def test_a_hook_may_leave_a_call() -> None:
    module = parse_program("def @main(%x: Tensor[(2,), float32]) { power(%x, 3f) }")
    assert "power" in str(Legalize()(module, CONTEXT))
