"""The call of every case survives the text form."""

from __future__ import annotations

import pytest

from tests.unit.op.harness import each_named, make_call, make_inputs, parameters_of
from weft import op as catalogue
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.ir.structural import structural_equal
from weft.ir.text.parser import parse
from weft.ir.typing.infer import infer_type

assert catalogue.__all__, "the import registers the operators"


@pytest.mark.parametrize("name", list(OPS))
def test_text_round_trip(name: str) -> None:
    operator = OPS.get(name)
    for number, one in enumerate(operator.cases):
        with each_named(name, number):
            call = make_call(operator, one, make_inputs(operator, one))
            module = infer_type(IRModule.from_expr(Function(parameters_of(call), call)))
            text = str(module)
            assert name in text
            again = infer_type(parse(text))
            assert structural_equal(module, again)
            assert str(again) == text
