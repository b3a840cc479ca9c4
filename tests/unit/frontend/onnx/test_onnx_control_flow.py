"""If, Loop and Scan, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import weft
from tests.errors.bad_models import error_of
from tests.onnxruntime_peer import run_onnxruntime
from weft.frontend.onnx import from_onnx
from weft.frontend.onnx.ops import control as ops_control
from weft.frontend.onnx.ops import scan as ops_scan
from weft.ir.expr import Call
from weft.ir.visitor import post_order
from weft.support.errors import InvalidModelError, UnsupportedModelError

# Values that grow in a loop have sizes that no kernel is compiled for beforehand.
KERNELS_DURING_CALLS = pytest.mark.filterwarnings(
    "ignore:kernels are compiled during calls:weft.FallbackWarning")
HEADER = '<ir_version: 8, opset_import: ["" : 18]>\n'


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def check(text: str, *inputs: np.ndarray) -> None:
    """The compiled model gives what the reference evaluator gives."""
    model = parse(text)
    names = [value.name for value in model.graph.input]
    expected = run_onnxruntime(model, dict(zip(names, map(np.asarray, inputs), strict=True)))
    found = weft.compile(model, opt_level=1)(*inputs)
    results = found if isinstance(found, tuple) else (found,)
    for a, b in zip(results, expected, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["unrolled", "looped"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Once with rounds one after the other, once as a loop of the program."""
    if request.param == "looped":
        monkeypatch.setattr(ops_control, "MAX_UNROLLED_NODES", 0)
        monkeypatch.setattr(ops_scan, "MAX_UNROLLED_NODES", 0)
    return request.param


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


IF = """agraph (float[3] x, bool c) => (float[3] y, float[3] z) {
  h = Relu(x)
  y, z = If(c) <
    then_branch = t () => (float[3] a, float[3] b) { a = Exp(h)  b = Neg(x) },
    else_branch = e () => (float[3] a, float[3] b) { a = Identity(x)  b = Add(h, h) }>
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_is_chosen_at_run_time(condition: bool) -> None:
    check(IF, numbers(3), np.array(condition))


def test_a_constant_condition_leaves_one_branch() -> None:
    model = parse(IF.replace("bool c", "float[1] unused").replace(
        "h = Relu(x)", "h = Relu(x)  c = Constant<value = bool {1}>()"))  # fmt: skip
    names = {str(e.op) for e in post_order(from_onnx(model)["main"]) if isinstance(e, Call)}
    assert names == {"nn.relu", "exp", "negative"}


LOOP = """agraph (float[3] x, int64 n, bool go) => (float[3] last, float[K, 3] all) {
  last, all = Loop(n, go, x) <body = b (int64 i, bool c, float[3] s)
    => (bool d, float[3] t, float[3] u) {
      step = CastLike(i, s)
      t = Add(s, step)
      u = Mul(t, x)
      d = Identity(c)
  }>
}"""


@KERNELS_DURING_CALLS
@pytest.mark.parametrize("rounds", [0, 1, 5])
def test_the_number_of_rounds_is_an_input(rounds: int) -> None:
    check(LOOP, numbers(3), np.int64(rounds), np.array(True))


@KERNELS_DURING_CALLS
def test_a_loop_that_does_not_begin() -> None:
    check(LOOP, numbers(3), np.int64(4), np.array(False))


@pytest.mark.parametrize("rounds", [0, 1, 6])
def test_a_known_number_of_rounds(form: str, rounds: int) -> None:
    text = LOOP.replace("int64 n, bool go", "float unused").replace(
        "last, all", f"n = Constant<value = int64 {{{rounds}}}>()\n"
        "go = Constant<value = bool {1}>()\n last, all", 1)  # fmt: skip
    check(text, numbers(3), np.float32(0))


WHILE = """agraph (float x) => (float y, float[K] seen) {
  limit = Constant<value = float {100}>()
  y, seen = Loop("", "", x) <body = b (int64 i, bool c, float s)
    => (bool d, float t, float u) {
      t = Add(s, s)
      u = Identity(s)
      d = Less(t, limit)
  }>
}"""


@KERNELS_DURING_CALLS
def test_a_condition_that_the_data_decides() -> None:
    for start in (3.0, 40.0, 500.0):
        check(WHILE.replace('"", ""', "n, go").replace("limit =", """
          n = Constant<value = int64 {50}>()
          go = Constant<value = bool {1}>()
          limit ="""), np.float32(start))


@KERNELS_DURING_CALLS
def test_values_that_grow(form: str) -> None:
    text = """agraph (float[1] x, int64 n, bool go) => (float[K] y) {
      y = Loop(n, go, x) <body = b (int64 i, bool c, float[L] s) => (bool d, float[M] t) {
          t = Concat<axis = 0>(s, x)
          d = Identity(c)
      }>
    }"""
    check(text, numbers(1), np.int64(4), np.array(True))


def test_a_loop_in_a_branch_in_a_loop() -> None:
    text = """agraph (float[2] x, int64 n, bool go) => (float[2] y) {
      two = Constant<value = int64 {2}>()
      one = Constant<value = int64 {1}>()
      y = Loop(n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
          d = Identity(c)
          odd = Mod(i, two)
          is_odd = Equal(odd, one)
          t = If(is_odd) <
            then_branch = p () => (float[2] r) {
              r = Loop(two, go, s) <body = q (int64 j, bool e, float[2] v) => (bool f, float[2] w) {
                f = Identity(e)
                m = CastLike(i, v)
                v2 = Mul(v, m)
                w = Sub(v2, x)
              }>
            },
            else_branch = q () => (float[2] r) { r = Celu(s) }>
      }>
    }"""
    check(text, numbers(2), np.int64(5), np.array(True))


SCAN = """agraph (float[2] init, float[2, 4] x, float[4] w) => (float[2] last, float[2, 4] all) {
  last, all = Scan(init, x, w) <num_scan_inputs = 2, scan_input_axes = [1, 0],
      scan_input_directions = [1, 0], scan_output_axes = [-1], scan_output_directions = [1],
      body = b (float[2] s, float[2] column, float weight) => (float[2] t, float[2] u) {
        scaled = Mul(column, weight)
        t = Add(s, scaled)
        u = Tanh(t)
  }>
}"""


def scan_by_hand(init: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    state, columns = init, []
    for step in range(4):
        state = state + x[:, 3 - step] * w[step]
        columns.append(np.tanh(state))
    return state, np.stack(columns[::-1], axis=1)


def test_scan(form: str) -> None:

    inputs = numbers(2), numbers(2, 4), numbers(4)
    for a, b in zip(weft.compile(parse(SCAN))(*inputs), scan_by_hand(*inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_scan_of_a_length_that_is_known_at_run_time() -> None:
    model = parse(SCAN.replace("x, float[4] w", "x, float[n] w").replace(
        "float[2, 4] x", "float[2, n] x").replace("float[2, 4] all", "float[2, n] all"))
    inputs = numbers(2), numbers(2, 4), numbers(4)
    for a, b in zip(weft.compile(model)(*inputs), scan_by_hand(*inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_what_is_missing_in_bodies_is_listed_with_its_place() -> None:
    text = IF.replace("Exp(h)", "Unknown(h)").replace("Neg(x)", "Unknown(x)")
    error = error_of(lambda: from_onnx(parse(text)), UnsupportedModelError)
    assert error.notes == (
        "operator Unknown: 2 nodes (If_1/then_branch/Unknown_0, If_1/then_branch/Unknown_1)",)


def test_names_that_a_body_does_not_find() -> None:
    error = error_of(lambda: from_onnx(parse(IF.replace("Exp(h)", "Exp(g)"))), InvalidModelError)
    assert "input 0 of If_1/then_branch/Exp_0 (Exp) is 'g'" in str(error)
    assert "If_1/then_branch" in str(error.where)


def test_branches_of_different_shapes() -> None:
    text = IF.replace("a = Identity(x)", "a = Concat<axis = 0>(x, x)")
    error = error_of(lambda: from_onnx(parse(text)), UnsupportedModelError)
    assert "different types" in error.what


def test_a_carried_value_that_changes_its_dtype() -> None:
    text = LOOP.replace("t = Add(s, step)", "sum = Add(s, step)  t = Cast<to = 11>(sum)").replace(
        "u = Mul(t, x)", "u = Mul(sum, x)")
    error = error_of(lambda: from_onnx(parse(text)), UnsupportedModelError)
    assert "changes its type" in error.what


def test_a_body_with_too_few_inputs() -> None:
    error = error_of(lambda: from_onnx(parse(LOOP.replace("(n, go, x)", "(n, go, x, x)"))),
                     InvalidModelError)
    assert "the loop body has the wrong number of inputs" in error.what
