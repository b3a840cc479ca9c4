"""Sequences are tuples whose length is known at import; optional values are there or not."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import weft
from tests.errors.bad_models import error_of
from weft.frontend.onnx import from_onnx
from weft.onnx_backend import prepare
from weft.support.errors import InvalidInputError, InvalidModelError, UnsupportedModelError


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')


MODEL = """agraph (seq(float[N, 2]) xs, float[1, 2] x) => (float[M, 2] all, seq(float[N, 2]) rest) {
  minus = Constant<value = int64 {-1}>()
  longer = SequenceInsert(xs, x, minus)
  all = ConcatFromSequence<axis = 0>(longer)
  rest = SequenceErase(longer, minus)
}"""


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def test_the_shapes_of_a_sequence_make_a_module() -> None:
    mod = from_onnx(parse(MODEL), inputs={"xs": [(3, 2), (1, 2)]})
    assert mod.attrs["input_names"] == ("xs[0]", "xs[1]", "x")
    assert mod.attrs["output_names"] == ("all", "rest[0]", "rest[1]")
    a, b, x = numbers(3, 2), numbers(1, 2), numbers(1, 2)
    together, first, second = weft.compile(mod)(a, b, x)
    np.testing.assert_array_equal(together, np.concatenate([a, x, b]))
    np.testing.assert_array_equal(first, a)
    np.testing.assert_array_equal(second, x)


def test_the_backend_takes_lists() -> None:
    ready, x = prepare(parse(MODEL)), numbers(1, 2)
    for lengths in ([2], [1, 4, 2], [2]):
        xs = [numbers(n, 2) for n in lengths]
        together, rest = ready.run([xs, x])
        np.testing.assert_array_equal(together, np.concatenate([*xs[:-1], x, xs[-1]]))
        assert [r.shape for r in rest] == [*((n, 2) for n in lengths[:-1]), (1, 2)]


OPTIONAL = """agraph (optional(float[3]) x, float[3] y) => (float[3] z) {
  there = OptionalHasElement(x)
  z = If(there) <
    then_branch = t () => (float[3] a) { e = OptionalGetElement(x)  a = Add(e, y) },
    else_branch = e () => (float[3] a) { a = Neg(y) }>
}"""


def test_optional_values_choose_a_branch() -> None:
    ready, x, y = prepare(parse(OPTIONAL)), numbers(3), np.float32([1, 2, 3])
    np.testing.assert_array_equal(ready.run([None, y])[0], -y)
    np.testing.assert_array_equal(ready.run([x, y])[0], x + y)


def test_a_loop_that_fills_a_sequence() -> None:
    text = """agraph (float[4] x) => (seq(float[K]) parts) {
      n = Constant<value = int64 {3}>()
      go = Constant<value = bool {1}>()
      first = Constant<value = int64[1] {0}>()
      empty = SequenceEmpty()
      parts = Loop(n, go, empty) <body = b (int64 i, bool c, seq(float[K]) s)
        => (bool d, seq(float[K]) t) {
          axis = Constant<value = int64[1] {0}>()
          end = Unsqueeze(i, axis)
          part = Slice(x, first, end)
          t = SequenceInsert(s, part)
          d = Identity(c)
      }>
    }"""
    x = numbers(4)
    (parts,) = prepare(parse(text)).run([x])
    assert [p.tolist() for p in parts] == [x[:n].tolist() for n in range(3)]
    endless = text.replace("float[4] x)", "float[4] x, int64 n)").replace(
        "n = Constant<value = int64 {3}>()", "")
    error = error_of(lambda: from_onnx(parse(endless)), UnsupportedModelError)
    assert "carries a sequence" in error.what


@pytest.mark.parametrize(("inputs", "kind", "what"), [
    ({}, InvalidModelError, "is a sequence, and its shape is not given"),
    ({"xs": (3, 2)}, InvalidInputError, "is a sequence of tensors"),
    ({"xs": [(3,)]}, InvalidInputError, "has the wrong rank"),
    ({"xs": []}, InvalidModelError, "sequence index out of range"),
])  # fmt: skip
def test_what_is_given_must_fit(inputs: dict, kind: type, what: str) -> None:
    error = error_of(lambda: from_onnx(parse(MODEL), inputs=inputs), kind)
    assert what in error.what
