"""Ill-typed programs built in Python: the place of each error is a line of this file."""

from __future__ import annotations

from collections.abc import Callable

from weft import op
from weft.ir import (
    Call,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    Match,
    Prelude,
    RefRead,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from weft.ir.expr import Clause, PatternConstructor, PatternWildcard
from weft.ir.span import Span

PROGRAMS: dict[str, Callable[[], IRModule]] = {}


def program(build: Callable[[], IRModule]) -> Callable[[], IRModule]:
    PROGRAMS[build.__name__] = build
    return build


@program
def addition() -> IRModule:
    x, y = var("x", (2, 3)), var("y", (4, 3))
    total = op.add(x, y)
    return IRModule.from_expr(Function((x, y), op.nn.relu(total)))


@program
def overloaded_operator() -> IRModule:
    x = var("x", ("batch", 8))
    w = const([[1.0] * 4] * 8)
    logits = x @ w
    scaled = logits * const([1.0, 2.0, 3.0])
    return IRModule.from_expr(Function((x,), scaled))


@program
def convolution() -> IRModule:
    x, w = var("x", (1, 3, 8, 8)), var("w", (16, 4, 3, 3))
    y = op.nn.conv2d(x, w, padding=(1, 1))
    return IRModule.from_expr(Function((x, w), y))


@program
def condition() -> IRModule:
    x = var("x", (2,))
    chosen = If(op.greater(x, const(0.0)), x, op.negative(x), span=Span.of_caller())
    return IRModule.from_expr(Function((x,), chosen))


@program
def field_of_batch_norm() -> IRModule:
    x, s = var("x", (1, 8, 4, 4)), var("s", (8,))
    normal = op.nn.batch_norm(x, s, s, s, s)
    return IRModule.from_expr(Function((x, s), normal[3]))


@program
def call_of_a_function_of_the_module() -> IRModule:
    x, y = var("x", (2,)), var("y", (3,))
    helper = Function((x,), op.exp(x))
    called = Call(GlobalVar("helper"), (y,), span=Span.of_caller())
    return IRModule({"helper": helper, "main": Function((y,), called)})


@program
def annotated_let() -> IRModule:
    x = var("x", (2,))
    whole = Var("whole", TensorType.of((2,), "int32"), span=Span.of_caller())
    return IRModule.from_expr(Function((x,), Let(whole, x, whole)))


@program
def read_of_a_tensor() -> IRModule:
    x = var("x", (2,))
    read = RefRead(x, span=Span.of_caller())
    return IRModule.from_expr(Function((x,), read))


@program
def missing_clause() -> IRModule:
    p = Prelude()
    cons = p.get_ctor("Cons")
    pattern = PatternConstructor(cons, (PatternWildcard(), PatternWildcard()))
    data = Call(p.get_ctor("Nil"), ())
    match = Match(data, (Clause(pattern, const(1.0)),), span=Span.of_caller())
    return p.mod.with_function("main", Function((), match))


@program
def two_errors() -> IRModule:
    x = var("x", (2, 3))
    first = op.sum(x, axis=(2,))
    second = op.reshape(x, newshape=(7,))
    return IRModule.from_expr(Function((x,), Tuple((first, second))))


@program
def field_of_a_tensor() -> IRModule:
    x = var("x", (2, 3))
    return IRModule.from_expr(Function((x,), TupleGetItem(x, 0, span=Span.of_caller())))
