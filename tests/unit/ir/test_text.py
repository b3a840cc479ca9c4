"""Printing and parsing: what is printed parses back to an equal program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.unit.ir.programs import arrays, modules
from weft import op
from weft.ir import (
    Call,
    Constant,
    Function,
    If,
    IRModule,
    Let,
    Span,
    Tuple,
    TupleGetItem,
    Var,
    as_text,
    assert_structural_equal,
    const,
    infer_expr,
    infer_type,
    parse,
    structural_equal,
    structural_hash,
    var,
)
from weft.ir.text.parser import parse_expr
from weft.ir.visitor import post_order, rewrite_post_order
from weft.support.errors import ParseError

EVERYTHING = """\
#[version = "1"]
#[attrs = {"input_names": ["x"], "nested": {"a": [1, -2.5, None, True, "q\\"t"]}}]
type List[A] {
  Cons(A, List[A]),
  Nil,
}
def @main(%x: Tensor[(1, 3, n, 2*n + 1), float32], %c: Tensor[(), bool]) -> Tensor[(?, 3, n, 2*n + 1), float32] {
  %0 = nn.relu(%x);
  let %y = add(%0, 1f);
  let %f = fn (%a: Tensor[(?,), float32], primitive=True) {
    exp(%a)
  };
  %2 = if (%c) {
    %1 = tanh(%y);
    add(%0, %1)
  } else {
    let %q = tanh(%y);
    multiply(%q, %q)
  };
  let %r = ref((%2, %y, (%x, %x)).0);
  let %u = ref_write(%r, %y);
  %3 = Nil();
  %4 = Cons(True, %3);
  let %l = Cons(%c, %4);
  let %m = match (%l) {
    Cons(%h, _) => {
      %h
    },
    Nil() => {
      False
    },
  };
  %5 = ref_read(%r);
  %6 = add(%5, const([1, inf, -1.5], (3, 1, 1), float32));
  %7 = maximum(%6, %0);
  if (%m) {
    %7
  } else {
    add(%7, 1e-05f)
  }
}
"""  # noqa: E501 - signatures are printed on one line


def round_trip(mod: IRModule) -> IRModule:
    text = str(mod)
    again = parse(text)
    assert_structural_equal(mod, again)
    assert structural_hash(mod) == structural_hash(again)
    assert str(again) == text
    return again


def test_every_construct_prints_as_it_was_written():
    assert str(parse(EVERYTHING)) == EVERYTHING
    infer_type(parse(EVERYTHING))


@given(modules())
@settings(max_examples=60, deadline=None)
def test_random_modules_round_trip(mod):
    round_trip(mod)
    round_trip(infer_type(mod))


@given(arrays())
@settings(max_examples=150, deadline=None)
def test_constants_round_trip_bit_for_bit(array):
    (again,) = parse_expr(str(Tuple((Constant(array),)))).fields
    assert again.data.dtype == array.dtype
    assert again.data.shape == array.shape
    assert again.data.tobytes() == array.tobytes()


@pytest.mark.parametrize("bits", [0x7FC00001, 0xFFC00000, 0x7F800000, 0x80000000, 0x00000001])
def test_payloads_of_nan_and_signs_of_zero_survive(bits):
    for shape in ((), (1,)):
        array = np.array(bits, np.uint32).view(np.float32).reshape(shape)
        assert parse_expr(str(Constant(array))).data.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1f", np.float32(1)),
        ("-2.5f", np.float32(-2.5)),
        ("0.1", np.float32(0.1)),
        ("3", np.int32(3)),
        ("-3i64", np.int64(-3)),
        ("7u8", np.uint8(7)),
        ("1.5f64", np.float64(1.5)),
        ("True", np.bool_(True)),
    ],
)
def test_scalar_literals(text, value):
    data = parse_expr(text).data
    assert data.dtype == np.asarray(value).dtype
    assert data == value


def test_large_constants_go_to_the_metadata_once():
    weight = const(np.arange(100, dtype=np.float32))
    x = var("x", (100,))
    mod = IRModule.from_expr(Function((x,), op.add(op.add(x, weight), weight)))
    text = str(mod)
    assert text.count("meta[Constant][0]") == 2
    assert text.count('"data"') == 1
    again = round_trip(mod)["main"].body
    assert again.args[1] is again.args[0].args[1]


def test_text_without_metadata_says_so_when_parsed():
    mod = IRModule.from_expr(const(np.zeros(100, np.float32)))
    with pytest.raises(ParseError, match="unknown constant 0") as caught:
        parse(as_text(mod, metadata=False))
    assert "metadata" in caught.value.help


def test_a_node_used_in_both_branches_is_bound_around_them():
    x, cond = var("x", (2,)), var("c", (), "bool")
    shared = op.exp(op.nn.relu(x))
    body = If(cond, op.negative(shared), op.abs(shared))
    mod = IRModule.from_expr(Function((x, cond), body))
    lines = [line.strip() for line in str(mod).splitlines()]
    assert lines.index("%1 = exp(%0);") < lines.index("if (%c) {")
    round_trip(mod)


def test_a_node_used_in_one_branch_alone_stays_in_it():
    x, cond = var("x", (2,)), var("c", (), "bool")
    mod = IRModule.from_expr(Function((x, cond), If(cond, op.exp(op.nn.relu(x)), x)))
    lines = [line.strip() for line in str(mod).splitlines()]
    assert lines.index("%0 = nn.relu(%x);") > lines.index("if (%c) {")


def test_a_let_that_is_an_operand_gets_a_block():
    x, y = var("x", (2,)), Var("y")
    mod = IRModule.from_expr(Function((x,), op.add(Let(y, op.exp(x), y), x)))
    assert "%0 = {" in str(mod)
    round_trip(mod)


def test_sharing_is_kept():
    x = var("x", (2,))
    once = op.exp(x)
    shared = Function((x,), op.add(once, once))
    copied = Function((x,), op.add(op.exp(x), op.exp(x)))
    assert structural_equal(parse_expr(str(shared)), shared)
    assert not structural_equal(parse_expr(str(shared)), copied)


def test_shared_fields_are_bound():
    x = var("x", (2,))
    item = TupleGetItem(Tuple((x, x)), 1)
    round_trip(IRModule.from_expr(Function((x,), op.add(item, item))))


def test_free_variables_are_declared():
    x = var("x", (2,))
    text = str(op.exp(x))
    assert text.startswith("free_var %x: Tensor[(2,), float32];")
    assert structural_equal(parse_expr(text), op.exp(x), map_free_vars=True)


def test_names_that_are_no_words_are_made_words():
    x, y = var("input.1", (2,)), var("input_1", (2,))
    text = str(Function((x, y), op.subtract(x, y)))
    assert "subtract(%input_1, %input_1_1)" in text


def test_global_names_keep_every_character():
    mod = IRModule({"main graph/1": Function((), const(1.0))})
    assert list(round_trip(mod).functions) == ["main graph/1"]


def test_generic_functions_print_their_type_parameters():
    text = """
    def @id[T](%x: T) -> T { %x }
    def @main(%x: Tensor[(2,), float32]) { @id[Tensor[(2,), float32]](%x) }
    """
    mod = parse(text)
    assert "def @id[T](%x: T) -> T {" in str(round_trip(mod))
    assert "@id[Tensor[(2,), float32]](%x)" in str(mod)


def test_types_and_spans_can_be_shown():
    fn = infer_expr(parse_expr("fn (%x: Tensor[(2,), float32]) { exp(tanh(%x)) }", source="m.ir"))
    shown = as_text(fn, types=True)
    assert "%0 = tanh(%x); /* ty=Tensor[(2,), float32] */" in shown
    assert structural_equal(parse_expr(shown), fn)
    assert '%0 = tanh(%x) loc["m.ir", 1, 38, None, 1, 46];' in as_text(fn, spans=True)


@given(modules())
@settings(max_examples=30, deadline=None)
def test_spans_round_trip(mod):
    def place(node, count=iter(range(10**9))):  # noqa: B008 - one counter for the program
        line = next(count)
        return node.replace(span=Span("model.onnx", line, None, f"Node_{line}"))

    placed = mod.with_function("main", rewrite_post_order(mod["main"], place))
    again = parse(as_text(placed, spans=True))
    assert_structural_equal(placed, again)

    def spans(module):
        calls = (n for n in post_order(module["main"]) if isinstance(n, (Call, If, Tuple)))
        return [str(call.span) for call in calls]

    assert spans(again) == spans(placed)


def test_types_of_every_kind_read_back():
    text = "fn (%f: fn (Tensor[(n,), int8], (bool, float16)) -> ref((int64,)), %h: _) { %f }"
    fn = parse_expr(text)
    assert str(fn.params[0].annotation) == (
        "fn(Tensor[(n,), int8], (Tensor[(), bool], Tensor[(), float16]))"
        " -> ref((Tensor[(), int64],))"
    )
    assert structural_equal(parse_expr(str(fn)), fn)


@pytest.mark.parametrize("dim", ["n", "2*n + 1", "m*n - 3", "floordiv(n, 2)", "?", "7"])
def test_dimensions_read_back(dim):
    annotation = parse_expr(f"fn (%x: Tensor[({dim},), int32]) {{ %x }}").params[0].annotation
    assert str(annotation) == f"Tensor[({dim},), int32]"


def test_calls_of_local_functions():
    x, f, p = var("x", (2,)), Var("f"), var("p", (2,))
    body = Let(f, Function((p,), op.exp(p)), Call(f, (x,)))
    round_trip(IRModule.from_expr(Function((x,), body)))
