"""What is refused, all at once, and converters of users."""

# ruff: noqa: E501 - lines of MLIR are as long as JAX prints them

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft
from weft import op
from weft.frontend.stablehlo import from_stablehlo
from weft.frontend.stablehlo.registry import CONVERTERS
from weft.support.errors import (
    InvalidModelError,
    OperatorError,
    OptionError,
    RegistryError,
    UnsupportedModelError,
)

TEXT = """
#loc1 = loc("model.py":12:3)
module {
  func.func @main(%x: tensor<4xf32> loc("x")) -> tensor<4xf32> {
    %0 = stablehlo.custom_call @scale(%x) {factor = 3.0 : f32} : (tensor<4xf32>) -> tensor<4xf32> loc("jit(f)/scale"(#loc1))
    %1 = call @inner(%0) : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  func.func private @inner(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
    %1 = stablehlo.fft %0, type = FFT, length = [4] : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
    %2 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      stablehlo.return %a : tensor<f32>
    }) : (tensor<4xf32>) -> tensor<4xf32>
    %3 = stablehlo.custom_call @scale(%2) : (tensor<4xf32>) -> tensor<4xf32>
    return %3 : tensor<4xf32>
  }
}
"""
ONE = """module { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @scale(%x) {factor = 3.0 : f32} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32> } }"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    assert weft.stablehlo_converter  # loads the converters of weft
    before = dict(CONVERTERS.entries)
    yield
    CONVERTERS.entries = before


def test_all_that_is_missing_is_listed_with_places() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        from_stablehlo(TEXT)
    shown = str(caught.value)
    assert "3 operations" in shown
    assert "custom call scale: 2 times (model.py:12 (node jit(f)/scale)" in shown
    assert "stablehlo.fft: programs have no complex dtype" in shown
    assert "stablehlo.all_reduce: collectives" in shown
    assert "stablehlo.convert of complex<f32>" in shown
    assert 'weft.stablehlo_converter("@scale")' in shown


def test_a_converter_of_the_user() -> None:
    @weft.stablehlo_converter("@scale")
    def scale(node, x, *, factor=1.0):
        return op.multiply(x, node.constant(factor, "float32"))

    x = np.arange(4, dtype=np.float32)
    assert weft.compile(from_stablehlo(ONE))(x).tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize(("converter", "error", "message"), [
    (lambda node, x: None, OperatorError, "returned no expression"),
    (lambda node, x: (x, x), InvalidModelError, "number of results"),
    (lambda node, x: op.reshape(x, newshape=(2, 2)), InvalidModelError, "another type"),
    (lambda node, x, *, power: x, InvalidModelError, "lacks attributes"),
])
def test_converters_that_are_wrong(converter, error, message) -> None:
    weft.stablehlo_converter("@scale")(converter)
    with pytest.raises(error, match=message):
        from_stablehlo(ONE)


def test_names_that_are_none() -> None:
    with pytest.raises(RegistryError, match="not the name"):
        weft.stablehlo_converter("scale")


def test_a_function_needs_example_inputs() -> None:
    with pytest.raises(OptionError, match="traced by JAX"):
        weft.compile(lambda x: x)


def test_regions_that_are_refused_are_told() -> None:
    text = """module { func.func @main(%x: tensor<4xf32>, %i: tensor<1xi32>, %u: tensor<f32>) -> tensor<4xf32> {
    %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.divide %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<4xf32>, tensor<1xi32>, tensor<f32>) -> tensor<4xf32>
    return %0 : tensor<4xf32> } }"""
    with pytest.raises(UnsupportedModelError, match="a region of its own in a scatter"):
        from_stablehlo(text)
