from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.rewrite.driver import check_rule_docstring
from weft.ir.text.parser import parse_expr
from weft.ir.typing.infer import infer_type
from weft.transform.index import RULES
from weft.transform.passes.simplify_expr import SimplifyExpr
from weft.transform.rules import SIMPLIFICATIONS


def module(text: str) -> IRModule:
    expr = parse_expr(text)
    assert isinstance(expr, Function)
    return infer_type(IRModule.from_expr(expr))


def check_sides(before: Function, after: Function) -> None:
    check_values(IRModule.from_expr(before), IRModule.from_expr(after))


def test_every_module_of_rules_is_applied():
    assert {part.module for part in SIMPLIFICATIONS.parts} == set(RULES)


@pytest.mark.parametrize("rule", tuple(SIMPLIFICATIONS), ids=lambda r: r.name)
def test_rule_does_what_its_docstring_says(rule):
    check_rule_docstring(rule, lambda text: module(text)["main"], check_sides)


def test_example():
    check_example(SimplifyExpr())


@pytest.mark.parametrize(
    "body",
    [
        "add(%x, const([0, 0, 0, 0, 0, 0, 0, 0, 0, 0], (5, 1, 2), float32))",  # spreads
        "multiply(%x, 2f)",
        "divide(1f, %x)",
        "divide(%x, 3f)",
        "divide(%x, 0f)",
        "erf(divide(%x, 2e38f))",  # the reciprocal is denormal
        "subtract(0f, %x)",
        'cast(%x, dtype="float64")',
        "strided_slice(%x, begin=(3,), end=(-5,), strides=(-1,), axes=(0,))",
        "transpose(%x, axes=(1, 0))",
        "clip(nn.relu(%x), a_min=-1.0, a_max=1.0)",
        "add(add(%x, const([1, 2], (2,), float32)), const([1, 2, 3, 4], (4, 1), float32))",
        'layout_transform(%x, src_layout="NC", dst_layout="CN")',
        "where(less(%x, 0f), %x, negative(%x))",
        "take(%x, const([0, 2, 1], (3,), int64), axis=0)",
        "take(%x, const([-1, 0, 1], (3,), int64), axis=0)",
        "take(%x, const([0, 0, 1, 1], (4,), int64), axis=0)",  # not of all elements
        "take(%x, const([3, 2, 1, 0], (4,), int64), axis=0)",
        "take(%x, const([0, 1], (1, 2), int64), axis=1)",
        "take(%x, const([2, 4, 6], (3,), int64))",
    ],
)
def test_what_must_stay(body):
    mod = parse_program(f"def @main(%x: Tensor[(4, 2), float32]) {{ {body} }}")
    assert SimplifyExpr()(mod) is mod


@pytest.mark.parametrize(("positions", "found"), [
    ("[0, 0, 1, 1, 2, 2, 3, 3]", "repeat"), ("[0, 2]", "strided_slice"),
    ("[1, 2, 3]", "strided_slice"),
])
def test_reads_at_regular_positions_need_no_table(positions, found):
    count = positions.count(",") + 1
    mod = parse_program(f"""
        def @main(%x: Tensor[(4, 2), float32]) {{
          take(%x, const({positions}, ({count},), int64), axis=0)
        }}""")
    after = SimplifyExpr()(mod)
    check_values(mod, after)
    assert op_calls(after) == [found]


def test_rules_reach_through_each_other():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 8, 1, 1), float32]) {
          %0 = layout_transform(%x, src_layout="NCHW", dst_layout="NCHW4c");
          %1 = copy(layout_transform(%0, src_layout="NCHW4c", dst_layout="NHWC"));
          transpose(%1, axes=(0, 3, 1, 2))
        }""")
    after = SimplifyExpr()(mod)
    check_values(mod, after)
    assert op_calls(after) == []


def test_symbolic_reshapes_cancel_and_unknown_ones_stay():
    text = """
        def @main(%x: Tensor[(SIZE, 6), float32]) {
          reshape(reshape(%x, newshape=(0, 2, 3)), newshape=(0, 6))
        }"""
    assert op_calls(SimplifyExpr()(parse_program(text.replace("SIZE", "n")))) == []
    unknown = parse_program(text.replace("SIZE", "?"))
    assert SimplifyExpr()(unknown) is unknown
