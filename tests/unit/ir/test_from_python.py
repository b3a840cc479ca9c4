# ruff: noqa: F821, F841, RET503 - annotations are of the IR, and some programs are wrong
"""Programs written as Python functions, and builders of control flow."""

import linecache
import re

import numpy as np
import pytest

from weft import op
from weft.ir import Function, IRModule, Prelude, ScopeBuilder, const, infer_type, var, verify_module
from weft.ir.expr import Call, If, Let
from weft.ir.python.builder import while_loop
from weft.ir.python.from_python import PythonFunction, Tensor, function
from weft.ir.visitor import post_order
from weft.support.errors import ParseError, TypeInferenceError, WellFormedError
from weft.transform.analysis.reference import evaluate

PRELUDE = Prelude()
Cons, Nil = PRELUDE.get_ctor("Cons"), PRELUDE.get_ctor("Nil")
fold = PRELUDE.get_global_var("foldl")
SCALE = 3.0


def value(fn: PythonFunction, *inputs):
    mod = infer_type(fn.module)
    verify_module(mod)
    result = evaluate(mod, [np.asarray(i) for i in inputs])
    return result.item() if result.shape == () else result.tolist()


@function
def scaled(x: Tensor[(2, "n"), "float32"]) -> Tensor[(2, "n"), "float32"]:
    """Python values outside are constants."""
    y = op.nn.relu(x)
    y *= SCALE
    a, b = y + 1.0, -y
    return a + b * 2.0


def test_assignments():
    x = np.float32([[1, -1], [2, 0]])
    assert value(scaled, x) == (1 - np.maximum(x, 0) * 3).tolist()
    assert str(scaled.function.params[0].annotation) == "Tensor[(2, n), float32]"


@function
def power(x: float, n: int) -> float:
    result = 1.0
    while n > 0:
        result = result * x
        n -= 1
    return result


def test_while():
    assert value(power, np.float32(3), np.int32(4)) == 81.0
    assert value(power, np.float32(3), np.int32(0)) == 1.0


@function
def sign(x: float) -> int:
    if x > 0.0:
        return 1
    if x == 0.0:
        kind = 0
    else:
        kind = -1
        if x < -100.0:
            kind = -2
    return kind


@pytest.mark.parametrize(("x", "expected"), [(5, 1), (0, 0), (-3, -1), (-300, -2)])
def test_if(x, expected):
    assert value(sign, np.float32(x)) == expected


@function
def even(n: int) -> bool:
    return True if n == 0 else odd(n - 1)


@function
def odd(n: int) -> bool:
    return False if n == 0 else even(n - 1)


def test_mutual_recursion():
    assert value(even, np.int32(10)) is True
    assert value(even, np.int32(7)) is False
    assert sorted(even.module.functions) == ["even", "main", "odd"]


@function
def total(xs: "List[int32]") -> int:
    match xs:
        case Cons(x, Cons(y, rest)):
            return x + y + total(rest)
        case Cons(x, _):
            return x
        case Nil():
            return 0


@function
def sum_of_squares(n: int) -> int:
    xs = Nil()
    for i in range(n):
        xs = Cons(i * i, xs)
    doubled = fold(lambda a, b: a + b, 0, xs)
    return total(xs) + doubled


def test_match_range_and_lambdas():
    assert value(sum_of_squares, np.int32(4)) == 2 * (0 + 1 + 4 + 9)


@function
def polynomial(x: float) -> float:
    coefficients = [1.0, 2.0, 3.0]
    result = 0.0
    for c in coefficients:
        if c != 2.0:
            result = result * x + c

    def shift(v):
        return v + 10.0 if v > 0.0 and not v > 100.0 else v

    return shift(result)


def test_python_loops_unroll_and_inner_functions_are_closures():
    assert value(polynomial, np.float32(2)) == 2.0 + 3 + 10


@function
def bounded(x: float) -> bool:
    return 0.0 < x < 1.0 or x == 5.0


@pytest.mark.parametrize(("x", "expected"), [(0.5, True), (2, False), (5, True), (-1, False)])
def test_chained_comparisons(x, expected):
    assert value(bounded, np.float32(x)) is expected


@function
def swap(p: "(float32, int32)"):
    match p:
        case (a, b):
            pair = (b, a)
    return pair[0]


def test_tuples_and_inferred_results():
    mod = infer_type(swap.module)
    assert str(mod["main"].checked_type) == (
        "fn((Tensor[(), float32], Tensor[(), int32])) -> Tensor[(), int32]"
    )


def test_spans_are_lines_of_this_file():
    lines = {n.span.line for n in post_order(power.function) if isinstance(n, (Call, Let, If))}
    first = power.python.__code__.co_firstlineno
    assert lines == set(range(first + 3, first + 6))
    assert all(n.span.source == __file__ for n in post_order(power.function) if n.span)


@function
def ill_typed(x: Tensor[(2,), "float32"], y: Tensor[(3,), "float32"]):
    h = op.exp(x)
    return h + y


def test_type_errors_point_into_python():
    with pytest.raises(TypeInferenceError) as caught:
        infer_type(ill_typed.module)
    line = ill_typed.python.__code__.co_firstlineno + 3
    assert caught.value.where.startswith(f"{__file__}:{line}")
    assert caught.value.notes[0].strip() == "| return h + y"


def no_result(x: int):
    y = x


def breaks(x: int):
    while x > 0:
        break
    return x


def raises(x: int):
    raise ValueError(x)


def guard(x: int):
    match x:
        case y if y > 0:
            return 1


def literal_case(x: int):
    match x:
        case 1:
            return 1


def subscript(x: int):
    x[0] = 1
    return x


def default(x: int = 1):
    return x


def nothing_carried(x: int):
    while x > 0:
        pass
    return x


def some_branch(x: int):
    if x > 0:
        return 1


def bad_annotation(x: [1]):
    return x


@pytest.mark.parametrize(
    ("source", "what", "offset"),
    [
        (no_result, "ends without a result", 1),
        (breaks, "not supported in loops", 1),
        (raises, "unsupported statement", 1),
        (guard, "unsupported guard of a case", 2),
        (literal_case, "unsupported pattern", 2),
        (subscript, "unsupported assignment target", 1),
        (default, "without defaults", 0),
        (nothing_carried, "the loop assigns no variable from outside", 1),
        (some_branch, "not every branch returns", 1),
        (bad_annotation, "not a type", 0),
    ],
)
def test_what_the_ir_has_no_meaning_for(source, what, offset):
    with pytest.raises(ParseError, match=re.escape(what)) as caught:
        _ = function(source).function
    line = source.__code__.co_firstlineno + offset
    assert caught.value.where.startswith(f"{__file__}:{line}:")
    assert caught.value.help
    assert "^" in caught.value.notes[1]


def test_functions_without_source_are_refused():
    made = eval("lambda x: x")
    with pytest.raises(ParseError):
        _ = function(made).function


@pytest.mark.parametrize("text", [
    "import sys; exec(sys.stdin.readline())",
    "x = 3",
    "x = (1,",
    "def other(x):\n    return x",
    "def made(y):\n    return y",
    "",
])
@pytest.mark.parametrize("made", ["lambda x: x", "(lambda: [made := lambda x: x])()[0]"])
def test_another_text_of_the_same_file_name_is_not_the_source(text, made, monkeypatch):
    """Python 3.13 keeps the text of ``python -c`` as that of the file ``<string>``."""
    lines = text.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, "<string>", (len(text), None, lines, "<string>"))
    with pytest.raises(ParseError):
        _ = function(eval(made)).function
    names = {}
    exec("def made(x):\n    return x", names)
    with pytest.raises(ParseError):
        _ = function(names["made"]).function


def test_a_lambda_in_the_middle_of_a_statement_is_refused():
    made = [
        1, lambda x:
        x]
    with pytest.raises(ParseError):
        _ = function(made[1]).function


def test_while_loop_builder():
    n, x = var("n", (), "int32"), var("x", ())
    last = while_loop(lambda i, _: i < n, lambda i, s: (i + 1, s * x), const(0), const(1.0))
    mod = infer_type(IRModule.from_expr(Function((n, x), last)))
    count, product = evaluate(mod, [np.int32(5), np.float32(2)])
    assert (count, product) == (5, 32.0)


def test_scopes_with_branches():
    x, c = var("x", (2,)), var("c", (), "bool")
    scope = ScopeBuilder()
    h = scope.let("h", op.exp(x))
    with scope.if_scope(c):
        scope.ret(scope.let("t", h + x))
    with scope.else_scope():
        scope.ret(h)
    body = scope.get()
    assert isinstance(body, Let)
    assert isinstance(body.body, If)
    assert isinstance(body.body.true_branch, Let)
    verify_module(infer_type(IRModule.from_expr(Function((x, c), body))))


def test_scopes_are_closed_in_order():
    scope = ScopeBuilder()
    with pytest.raises(WellFormedError, match="a block without a result"):
        scope.get()
    with pytest.raises(WellFormedError, match="else_scope without an if_scope"), scope.else_scope():
        pass
    scope.ret(const(1))
    with pytest.raises(WellFormedError, match="ret was called twice"):
        scope.ret(const(2))
