"""Higher-order programs made first-order."""

from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_example, check_values, parse_program
from tests.unit.transform.test_functions import ESCAPING, LOOP
from weft.ir.expr import Function
from weft.ir.types import FuncType
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform.normal_form.defunctionalization import Defunctionalization


def _is_first_order(mod):
    for fn in mod.functions.values():
        for node in post_order(fn):
            if node is not fn and isinstance(node, Function):
                return False
            if type(node).__name__ == "Var" and isinstance(node.checked_type, FuncType):
                return False
    return True


def test_example():
    check_example(Defunctionalization())


@pytest.mark.parametrize("text", [LOOP, ESCAPING], ids=["loop", "escaping"])
def test_closures(text):
    mod = parse_program(text)
    after = Defunctionalization()(mod)
    check_values(mod, after)
    assert _is_first_order(after)


def test_functions_that_make_and_take_functions():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32], %c: Tensor[(), bool]) {
          let %f = if (%c) { @plus(%x) } else { fn (%z: Tensor[(2,), float32]) { tanh(%z) } };
          let %g = (%f, @plus(exp(%x)));
          %g.0(%g.1(@apply(%f, %x)))
        }
        def @plus(%a: Tensor[(2,), float32]) {
          fn (%b: Tensor[(2,), float32]) { add(%a, %b) }
        }
        def @apply(%f: fn (Tensor[(2,), float32]) -> Tensor[(2,), float32],
                   %x: Tensor[(2,), float32]) { %f(%x) }""")
    after = Defunctionalization()(mod)
    check_values(mod, after)
    assert _is_first_order(after)
    (data,) = after.type_definitions.values()
    assert sorted(len(c.inputs) for c in data.constructors) == [0, 1]


def test_first_order_programs_stay():
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    assert Defunctionalization()(mod) is mod


def test_generic_functions_are_refused():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) { @id(%x) }
        def @id[A](%x: A) -> A { %x }""")
    with pytest.raises(PassError, match="generic"):
        Defunctionalization()(mod)
