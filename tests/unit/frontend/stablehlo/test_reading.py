"""The parser: both forms of MLIR, places, and damaged text."""

# ruff: noqa: E501 - lines of MLIR are as long as JAX prints them

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

import weft
from tests.unit.frontend.stablehlo.programs import PROGRAMS
from weft.frontend.stablehlo import from_stablehlo
from weft.frontend.stablehlo.lexer import Lines, span_at
from weft.frontend.stablehlo.locations import located
from weft.frontend.stablehlo.parser import parse_module
from weft.frontend.stablehlo.syntax import HloType, Literal
from weft.frontend.stablehlo.types import array_of
from weft.ir import structural_equal
from weft.support.errors import InvalidModelError, TypeInferenceError, UnsupportedModelError

# What damaged text may raise.
ERRORS = (InvalidModelError, TypeInferenceError, UnsupportedModelError)

CUSTOM = """
module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  sdy.mesh @mesh = <["x"=2]>
  func.func public @main(%arg0: tensor<2x3xf32> {mhlo.sharding = "{replicated}"}) -> (tensor<2xf32> {jax.result_info = "result"}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = call @twice(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
  func.func private @twice(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = stablehlo.add %arg0, %arg0 {result_accuracy = #stablehlo.result_accuracy<mode = #stablehlo.result_accuracy_mode<DEFAULT>>} : tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}
"""
GENERIC = """
#loc1 = loc("x")
"builtin.module"() <{sym_name = "jit_f"}> ({
  "func.func"() <{arg_attrs = [{}], function_type = (tensor<2x3xf32>) -> tensor<2xf32>, res_attrs = [{jax.result_info = "result"}], sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%arg0: tensor<2x3xf32> loc("arg0")):
    %0 = "stablehlo.constant"() <{value = dense<0.0> : tensor<f32>}> : () -> tensor<f32>
    %1 = "stablehlo.add"(%arg0, %arg0) : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
    %2 = "stablehlo.reduce"(%1, %0) <{dimensions = array<i64: 1>}> ({
    ^bb0(%arg1: tensor<f32> loc("a"(#loc1)), %arg2: tensor<f32> loc(unknown)):
      %3 = "stablehlo.add"(%arg1, %arg2) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "stablehlo.return"(%3) : (tensor<f32>) -> ()
    }) : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32> loc(#loc1)
    "func.return"(%2) : (tensor<2xf32>) -> ()
  }) : () -> ()
}) : () -> ()
"""


def test_both_forms_are_one_program() -> None:
    one, other = from_stablehlo(CUSTOM), from_stablehlo(GENERIC)
    assert structural_equal(one["main"], other["main"])
    assert one.attrs["input_names"] == other.attrs["input_names"] == ("arg0",)
    assert one.attrs["output_names"] == ("result",)
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    assert weft.compile(one)(x).tolist() == [12, 30]


@pytest.mark.parametrize(("location", "expected"), [
    ('"f.py":3:4 to :9', ("", "f.py", 3)),
    ("callsite(#loc2 at #loc1)", ("jit(f)/mul", "f.py", 3)),
    ("fused[#loc2, #loc1]", ("jit(f)/mul", "f.py", 3)),
    ("unknown", ("", "", None)), ("#loc9", ("", "", None)), ('"x"', ("x", "", None)),
    ("#loc3", ("", "", None)),  # itself
])
def test_places(location: str, expected: tuple[str, str, int | None]) -> None:
    table = {"#loc1": '"f.py":3:4', "#loc2": '"jit(f)/mul"(#loc1)', "#loc3": "#loc3"}
    assert located(location, table) == expected


@pytest.mark.parametrize(("text", "element", "shape", "expected"), [
    ("dense<7>", "i32", (2,), [7, 7]), ("dense<[[1, -2]]>", "i8", (1, 2), [[1, -2]]),
    ("dense<0xFF800000>", "f32", (), -np.inf), ("dense<[1.5, 0x3F800000]>", "f32", (2,), [1.5, 1]),
    ("dense<[true, false]>", "i1", (2,), [True, False]), ("dense<>", "f32", (0, 2), []),
    ('dense<"0x0100000002000000">', "i32", (2,), [1, 2]), ("dense<0x7FC0>", "bf16", (), np.nan),
    ("dense<18446744073709551615>", "ui64", (), 2**64 - 1),
])
def test_literals(text: str, element: str, shape: tuple[int, ...], expected: object) -> None:
    found = array_of(Literal(text, HloType(shape, element)))
    assert found.shape == shape
    np.testing.assert_array_equal(found.astype(np.float64),
                                  np.asarray(expected, np.float64).reshape(shape))


@pytest.mark.parametrize(("text", "message"), [
    ("", "no function main"), ("module {", "the end of the text"),
    ("module { func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %b : tensor<2xf32> } }",
     "reads values that are not there"),
    ("module { func.func @main(%a: tensor<2xf32> { return } }", "value"),
    ("module { func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> { ^bb1: ^bb2: } }", "one block"),
    (("module { func.func @main() -> tensor<3xf32> { %0 = stablehlo.constant dense<[1.0, 2.0]> : "
      "tensor<3xf32> return %0 : tensor<3xf32> } }"),
     "another number of elements"),
    (("module { func.func @main(%a: tensor<2xf32>) -> tensor<3xf32> { %0 = stablehlo.tanh %a : "
      "(tensor<2xf32>) -> tensor<3xf32> return %0 : tensor<3xf32> } }"), "another type"),
    ("module { func.func @main(%a: tensor<2xf32>) { call @g(%a) : (tensor<2xf32>) -> () return } }",
     "no function 'g'"),
    ("module \x01 {", "unexpected character"),
    ("module { func.func @main() { return } } loc(" + "(" * 5, "the end of the text"),
    ("module { func.func @main() { %0 = stablehlo.constant {a = " + "[" * 999, "nesting"),
])
def test_damaged_text_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        from_stablehlo(text)


def test_functions_that_call_each_other_without_end() -> None:
    text = ("module { func.func @main(%a: tensor<f32>) -> tensor<f32> { %0 = call @main(%a) : "
            "(tensor<f32>) -> tensor<f32> return %0 : tensor<f32> } }")
    with pytest.raises(UnsupportedModelError, match="call each other"):
        from_stablehlo(text)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_text_is_an_error_or_a_program(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(400):
        text = draw.choice(PROGRAMS).text
        for _ in range(draw.randint(1, 3)):
            at, length = draw.randrange(len(text)), draw.randrange(4)
            piece = draw.choice(["", "0", "%a", "?", ">", "-1", "]", "tensor<2xf32>", "x9"])
            text = text[:at] + piece + text[at + length:]
        with contextlib.suppress(*ERRORS):
            from_stablehlo(text)


def test_places_are_found_by_their_positions() -> None:
    text = "\nmodule {\n\n  x\n}"
    lines = Lines(text, "f.mlir")
    for offset in range(len(text)):
        span = span_at(text, offset, "f.mlir")
        assert lines.span(offset) == span
        assert lines.span(offset).text == span.text


def test_a_long_module_is_read_whole() -> None:
    lines = "\n".join(f"%{n + 1} = stablehlo.add %{n}, %{n} : tensor<f32>" for n in range(3000))
    text = (f"module {{ func.func @main(%0: tensor<f32>) -> tensor<f32> {{ {lines}\n"
            "return %3000 : tensor<f32> } }")
    assert len(parse_module(text).functions["main"].body.operations) == 3001
