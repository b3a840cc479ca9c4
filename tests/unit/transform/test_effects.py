"""A pass may not write to a reference more often, less often, later or elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.unit.transform.helpers import parse_program
from weft.ir.expr import Call, Expr, Function, Let, RefWrite, Tuple
from weft.ir.instruments import VerifyInstrument
from weft.ir.passes import FunctionPass, PassContext
from weft.ir.visitor import rewrite_post_order
from weft.support.errors import InternalError, PassError
from weft.transform import check_same_values
from weft.transform.analysis.graph import as_function

COUNTER = """
def @main(%x: Tensor[(2,), float32], %n: int32) {
  let %r = ref(%x);
  let %f = fn (%y: Tensor[(2,), float32]) -> () { ref_write(%r, add(ref_read(%r), %y)) };
  let %a = %f(%x);
  let %b = ref_write(%r, multiply(ref_read(%r), 3f));
  let %c = if (less(%n, 1)) { %f(exp(%x)) } else { ref_write(%r, %x) };
  ref_read(%r)
}"""


@dataclass(frozen=True)
class Broken(FunctionPass):
    """Rewrites bindings of effects as ``how`` says, which is wrong in each way."""

    name: ClassVar[str] = "broken"
    how: str = "dropped"

    def run(self, fn: Function, ctx: PassContext) -> Function:
        return as_function(rewrite_post_order(fn, self._step))

    def _step(self, node: Expr) -> Expr:
        if not isinstance(node, Let) or not isinstance(node.body, Let):
            return node
        value, after = node.value, node.body
        if self.how == "dropped" and isinstance(value, RefWrite):
            return after
        if self.how == "repeated" and isinstance(value, RefWrite):
            again = RefWrite(value.ref, value.value)
            return node.replace(value=Tuple((again, value)))
        if self.how == "called twice" and isinstance(value, Call) and value.op.name == "f":
            return node.replace(value=Tuple((Call(value.op, value.args), value)))
        if self.how == "swapped" and isinstance(value, Call) and value.op.name == "f":
            return Let(after.var, after.value, Let(node.var, value, after.body))
        return node


@pytest.mark.parametrize("how", ["dropped", "repeated", "called twice", "swapped"])
def test_a_broken_pass_is_caught(how):
    mod = parse_program(COUNTER)
    ctx = PassContext(instruments=(VerifyInstrument(compare=check_same_values),))
    with pytest.raises(PassError, match="changed what the program computes"):
        Broken(how=how)(mod, ctx)


def test_effects_count_where_no_result_shows_them():
    text = """
        def @main(%x: Tensor[(2,), float32]) {{
          let %r = ref(%x);
          let %s = ref(%x);
          {statements}
          %x
        }}"""

    def program(*statements: str):
        lines = (f"let %u{i} = {s};" for i, s in enumerate(statements))
        return parse_program(text.format(statements=" ".join(lines)))

    first, second, other = ("ref_write(%r, exp(%x))", "ref_write(%r, tanh(%x))",
                            "ref_write(%s, tanh(%x))")
    check_same_values(program(first, second), program(first, second))
    # Which of two references nobody wrote to before is the first makes no difference.
    check_same_values(program("ref_write(%s, exp(%x))"), program(first))
    for changed in ([first], [second, first], [first, other], [first, second, second], []):
        with pytest.raises(InternalError, match="changed what the program computes"):
            check_same_values(program(first, second), program(*changed))
