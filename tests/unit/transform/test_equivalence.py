from __future__ import annotations

import pytest

from tests.unit.transform.helpers import parse_program
from weft.ir.instruments import VerifyInstrument
from weft.ir.passes import PassContext
from weft.support.errors import InternalError
from weft.transform import SimplifyExpr
from weft.transform.analysis.equivalence import check_same_values


def program(body: str, dtype: str = "float32"):
    return parse_program(f"def @main(%x: Tensor[(3,), {dtype}]) {{ {body} }}")


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("exp(%x)", "exp(add(%x, 0.1f))", "relative error"),
        ("exp(%x)", 'cast(exp(%x), dtype="float64")', "float32.* became float64"),
        ("exp(%x)", "expand_dims(exp(%x), axis=0)", "became"),
        ("log(%x)", "log(abs(%x))", "NaN"),
        ("less(%x, 0f)", "less(%x, 2f)", "unequal"),
        ("(%x, exp(%x))", "(%x, %x)", "result 1"),
    ],
)
def test_differences_are_found(before, after, reason):
    with pytest.raises(InternalError, match=reason):
        check_same_values(program(before), program(after))


def test_roundings_and_equal_infinities_pass():
    check_same_values(program("add(add(%x, 0.1f), 0.2f)"), program("add(%x, 0.3f)"))
    check_same_values(program("divide(%x, 0f)"), program("divide(add(%x, 0f), 0f)"))


def test_symbolic_programs_are_not_compared():
    symbolic = parse_program("def @main(%x: Tensor[(n,), float32]) { exp(%x) }")
    check_same_values(symbolic, parse_program("def @main(%x: Tensor[(n,), float32]) { %x }"))


def test_as_an_instrument():
    ctx = PassContext(instruments=(VerifyInstrument(compare=check_same_values),))
    after = SimplifyExpr()(program("add(%x, 0f)"), ctx)
    assert after["main"].body is after["main"].params[0]
