"""Small passes: spans, casts, defusion, fixed points, printing, rematerialization and others."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import (
    check_example,
    check_values,
    example_of,
    op_calls,
    parse_program,
)
from weft import op
from weft.ir.expr import Call, Constant, Function, Let, Var, const, var
from weft.ir.module import IRModule
from weft.ir.passes import PassContext, parse_pipeline
from weft.ir.text.parser import parse
from weft.ir.typing.infer import infer_type
from weft.ir.verify import verify_module
from weft.ir.visitor import post_order
from weft.support.errors import OptionError, PassError, WellFormedError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.checkpoint.recompute import Recompute
from weft.transform.autodiff.reverse.gradient import Gradient
from weft.transform.autodiff.reverse.lazy_gradient_init import LazyGradientInit
from weft.transform.normal_form.dedup import Dedup
from weft.transform.normal_form.eta_expand import EtaExpand
from weft.transform.passes.annotate_spans import AnnotateSpans
from weft.transform.passes.canonicalize_cast import CanonicalizeCast
from weft.transform.passes.dynamic_to_static import DynamicToStatic
from weft.transform.passes.eliminate_identity import EliminateIdentity
from weft.transform.passes.fast_math import FastMath
from weft.transform.passes.fixed_point import FixedPoint
from weft.transform.passes.print_ir import PrintIR


@pytest.mark.parametrize(
    "pass_",
    [
        AnnotateSpans(),
        CanonicalizeCast(),
        Dedup(),
        DynamicToStatic(),
        EliminateIdentity(),
        EtaExpand(global_var=True),
        FastMath(functions=("sigmoid",)),
        FixedPoint(passes=("simplify_expr", "fold_constant")),
        LazyGradientInit(),
        Recompute(distance=2),
    ],
    ids=lambda p: p.name,
)
def test_example(pass_):
    check_example(pass_)


def test_variables_bound_twice_get_two_identities():
    x, a = var("x", (2,)), Var("a")
    inner = Let(a, op.tanh(x), op.negative(a))
    fn = Function((x,), Let(a, op.exp(x), op.add(inner, a)))
    mod = infer_type(IRModule.from_expr(fn))
    with pytest.raises(WellFormedError, match="bound twice"):
        verify_module(mod)
    after = Dedup()(mod)
    verify_module(after)
    (got,) = [evaluate(after, [np.zeros(2, np.float32)])]
    np.testing.assert_array_equal(got, np.ones(2))
    assert Dedup()(after) is after


def test_printing_changes_nothing_and_shows_all():
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    stream = io.StringIO()
    context = PassContext(config={"print_ir_stream": stream})
    assert parse_pipeline("print_ir{header=here}")(mod, context) is mod
    assert stream.getvalue().startswith("// here\n")
    assert "exp(%x)" in stream.getvalue()


def test_one_function_can_be_printed(capsys):
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) { @f(%x) }
        def @f(%x: Tensor[(2,), float32]) { tanh(%x) }""")
    PrintIR(functions=("f",))(mod)
    shown = capsys.readouterr().err
    assert "tanh" in shown
    assert "def @main" not in shown


def test_spans_are_lines_of_the_text(tmp_path):
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(tanh(%x)) }")
    path = tmp_path / "net.ir"
    after = AnnotateSpans(path=str(path))(mod)
    lines = path.read_text().splitlines()
    for node in post_order(after["main"].body):
        if isinstance(node, Call):
            assert node.span.source == str(path)
            assert node.op.name in lines[node.span.line - 1]


def test_fixed_points_settle_or_say_so():
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    assert FixedPoint(passes=("simplify_expr",))(mod) is mod
    swing = FixedPoint(passes=("to_a_normal_form", "to_graph_normal_form"))
    assert swing(mod)["main"].params[0].name == "x"  # the round ends where it began
    grow = FixedPoint(passes=("gradient",), limit=2)
    with pytest.raises(PassError, match="still changes the program after 2 iterations"):
        grow(mod)
    assert FixedPoint(passes=("gradient",), limit=1, settle=False)(mod) is not mod
    with pytest.raises(OptionError):
        FixedPoint()(mod)
    text = "fixed_point{passes=(simplify_expr fold_constant),limit=3}"
    assert str(parse_pipeline(text)) == text


def test_identities_of_every_kind():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 3), float32]) {
          %0 = split(%x, indices_or_sections=2, axis=0);
          %1 = nn.dropout(concatenate((strided_slice(%x, begin=(0,), end=(2,)),), axis=0));
          %2 = nn.pad(%1.0, 0f, pad_width=((0, 0), (0, 0)));
          ((%0.0, %0.1), (%2, exp(%x)).0,
           strided_slice(%x, begin=(1,), end=(-3,), strides=(-1,)),
           transpose(broadcast_to(%x, shape=(2, 3))))
        }""")
    after = EliminateIdentity()(mod)
    check_values(mod, after)
    assert sorted(op_calls(after)) == ["split", "strided_slice", "transpose"]


def test_casts_are_shared_by_what_does_not_fuse():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 4), float16], %y: Tensor[(2, 4), float32]) {
          %0 = cast(%x, dtype="float32");
          %1 = cast(%y, dtype="float16");
          (nn.dense(%0, %0), nn.softmax(%0), exp(%0), sum(%0), exp(%1), tanh(%1))
        }""")
    after = CanonicalizeCast()(mod)
    check_values(mod, after)
    assert op_calls(after).count("cast") == 3


def test_shapes_known_later_fix_results():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 3), float32]) -> (Tensor[(2,), int64], Tensor[(2, 3), float32]) {
          let %s = shape_of(exp(%x));
          (multiply(%s, %s), %x)
        }""")
    after = parse_pipeline("to_graph_normal_form,dynamic_to_static")(mod)
    check_values(mod, after)
    assert isinstance(after["main"].body.fields[0], Constant)
    symbolic = parse_program("def @main(%x: Tensor[(n, 3), float32]) { shape_of(%x) }")
    assert op_calls(DynamicToStatic()(symbolic)) == ["shape_of"]


@pytest.mark.parametrize(
    ("name", "exact"),
    [("tanh", np.tanh), ("erf", np.vectorize(math.erf)), ("sigmoid", lambda x: 1/(1 + np.exp(-x)))],
)
def test_fast_functions_are_near(name, exact):
    mod = parse_program(f"def @main(%x: Tensor[(20001,), float32]) {{ {name}(%x) }}")
    after = FastMath()(mod)
    verify_module(after)
    assert name not in op_calls(after)
    x = np.linspace(-12, 12, 20001).astype(np.float32)
    compiled = weft.compile(after)
    got = compiled(x)
    assert np.abs(got - exact(x.astype(np.float64))).max() < 5e-7
    edges = np.full(20001, np.nan, np.float32)
    edges[:2] = [np.inf, -np.inf]
    got = compiled(edges)
    np.testing.assert_allclose(got[:2], exact(np.asarray([40.0, -40.0])), atol=5e-7)
    assert np.isnan(got[2:]).all()


def test_division_by_constants_multiplies():
    mod = parse_program("""
        def @main(%x: Tensor[(2,), float32]) {
          (divide(%x, 3f), divide(%x, 0f), divide(3f, %x))
        }""")
    after = FastMath()(mod)
    check_values(mod, after)
    assert op_calls(after) == ["multiply", "divide", "divide"]


def test_gradients_lose_their_zeros_and_ones():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(3,), float32]) {
          %0 = split(exp(%x), indices_or_sections=2, axis=0);
          sum(multiply(%0.0, %y))
        }""")
    grad = Gradient()(mod)
    after = LazyGradientInit()(grad)
    check_values(grad, after)
    assert len(op_calls(after)) < len(op_calls(grad))
    assert "ones" not in op_calls(after) or op_calls(after).count("ones") <= 1


def test_recomputed_values_are_equal_and_near():
    x = var("x", (3,))
    kept = op.add(op.nn.relu(x), const(1.0))
    y = kept
    for _ in range(10):
        y = op.nn.softmax(y)
    mod = infer_type(IRModule.from_expr(Function((x,), op.multiply(y, kept))))
    after = Recompute(distance=5)(mod)
    check_values(mod, after)
    assert op_calls(after).count("add") == 2
    assert op_calls(Recompute(distance=50)(mod)) == op_calls(mod)
    once = parse_pipeline("eliminate_common_subexpr")(after)
    assert op_calls(once) == op_calls(after)  # the barrier keeps the copies apart


def test_marked_values_are_kept_and_others_computed_again():
    mod = parse_program("""
        def @main(%x: Tensor[(3,), float32]) {
          sum(tanh(exp(annotation.checkpoint(sin(cos(%x))))))
        }""")
    grad = Gradient()(mod)
    after = Recompute(distance=4, everything=True)(grad)
    check_values(grad, after)
    before, calls = op_calls(grad), op_calls(after)
    assert calls.count("exp") > before.count("exp")
    assert calls.count("annotation.checkpoint") == before.count("annotation.checkpoint") == 1
    assert calls.count("sin") == before.count("sin")


def test_constructors_as_values_are_written_out():
    mod = parse_program("""
        type Box { Some(Tensor[(2,), float32]), None }
        def @main(%x: Tensor[(2,), float32]) {
          match (@make(Some, %x)) { Some(%v) => { %v }, None => { %x } }
        }
        def @make(%f: fn (Tensor[(2,), float32]) -> Box[], %x: Tensor[(2,), float32]) { %f(%x) }""")
    after = EtaExpand()(mod)
    check_values(mod, after)
    assert any(isinstance(n, Function) for n in post_order(after["main"].body))
    assert example_of(EtaExpand)


SYMBOLIC_SHAPES = """
def @main(%x: Tensor[(batch, seq, 768), float32], %past: Tensor[(batch, 12, past, 64), float32]) {
  let %s = shape_of(%x);
  let %b = take(%s, const([0], (1,), int64), axis=0);
  let %t = take(%s, 1i64, axis=0);
  let %p = take(shape_of(%past), 2i64, axis=0);
  let %heads = concatenate((%b, const([-1, 12, 64], (3,), int64)), axis=0);
  let %q = transpose(dyn.reshape(%x, %heads), axes=[0, 2, 1, 3]);
  let %k = concatenate((%past, %q), axis=2);
  let %hidden = concatenate((const([-1], (1,), int64), take(%s, const([2], (1,), int64), axis=0)));
  let %two = strided_slice(%s, begin=[0], end=[2]);
  let %minus = const([-1, -1], (2,), int64);
  let %ones = const([1, 1], (2,), int64);
  let %target = where(equal(%two, %minus), %ones, %two);
  let %wide = dyn.broadcast_to(const([2], (1, 1), float32), %target);
  let %half = floor_divide(add(%t, 1i64), 2i64);
  (%k, dyn.arange(%p, add(%p, %t), 1i64, dtype="int64"), dyn.reshape(%x, %hidden), %wide,
   dyn.zeros(stack((%half, maximum(%t, %p))), dtype="float32"))
}
"""


def test_symbolic_shape_operands_become_attributes() -> None:
    mod = infer_type(parse(SYMBOLIC_SHAPES))
    after = infer_type(parse_pipeline("to_graph_normal_form,dynamic_to_static")(mod))
    assert not [name for name in op_calls(after) if name.startswith("dyn.")]
    result = str(after["main"].ret_type or after["main"].checked_type)
    assert "?" not in result
    for type_ in ("Tensor[(batch, 12, past + seq, 64), float32]", "Tensor[(seq,), int64]",
                  "Tensor[(batch*seq, 768), float32]", "Tensor[(batch, seq), float32]",
                  "Tensor[(floordiv(seq + 1, 2), max(past, seq)), float32]"):
        assert type_ in result
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, 3, 768)).astype(np.float32),
              rng.normal(size=(2, 12, 4, 64)).astype(np.float32)]
    for found, wanted in zip(evaluate(after, arrays), evaluate(mod, arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)
