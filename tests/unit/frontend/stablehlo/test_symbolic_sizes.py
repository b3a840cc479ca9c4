"""Shape-polymorphic modules: sizes that the text leaves open are symbols of weft."""

# ruff: noqa: E501 - lines of MLIR are as long as JAX prints them

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.frontend.stablehlo import from_stablehlo
from weft.support.errors import InvalidModelError, UnsupportedModelError

# concatenate([x.reshape(-1), arange(b)]).reshape(b, -1) @ ones((5, 3)), as JAX exports it.
TEXT = """
#loc4 = loc("x")
module @jit_g attributes {jax.uses_shape_polymorphism = true} {
  func.func public @main(%arg0: tensor<?x4xf32> loc(unknown)) -> (tensor<?x3xf32> {jax.result_info = "result"}) {
    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.get_dimension_size %arg0, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
    %1 = stablehlo.compare GE, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.custom_call @shape_assertion(%1, %0) {api_version = 2 : i32, error_message = "no", has_side_effect = true} : (tensor<i1>, tensor<i32>) -> ()
    %2 = call @_wrapped_jax_export_main(%0, %arg0) : (tensor<i32>, tensor<?x4xf32>) -> tensor<?x3xf32>
    return %2 : tensor<?x3xf32>
  }
  func.func private @_wrapped_jax_export_main(%arg0: tensor<i32> {jax.global_constant = "b"} loc(unknown), %arg1: tensor<?x4xf32> loc("x")) -> (tensor<?x3xf32>) {
    %c_0 = stablehlo.constant dense<5> : tensor<1xi32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %c_4 = stablehlo.constant dense<4> : tensor<i32>
    %0 = stablehlo.convert %arg0 : tensor<i32>
    %1 = stablehlo.multiply %0, %c_4 : tensor<i32>
    %2 = stablehlo.reshape %1 : (tensor<i32>) -> tensor<1xi32>
    %3 = stablehlo.dynamic_reshape %arg1, %2 : (tensor<?x4xf32>, tensor<1xi32>) -> tensor<?xf32>
    %4 = stablehlo.reshape %arg0 : (tensor<i32>) -> tensor<1xi32>
    %5 = stablehlo.dynamic_iota %4, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
    %6 = stablehlo.convert %5 : (tensor<?xi32>) -> tensor<?xf32>
    %7 = stablehlo.dynamic_broadcast_in_dim %cst_1, %4, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
    %8 = stablehlo.multiply %6, %7 : tensor<?xf32>
    %17 = stablehlo.concatenate %3, %8, dim = 0 : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
    %19 = stablehlo.concatenate %4, %c_0, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
    %20 = stablehlo.dynamic_reshape %17, %19 : (tensor<?xf32>, tensor<2xi32>) -> tensor<?x5xf32>
    %21 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
    %22 = stablehlo.dot_general %20, %21, contracting_dims = [1] x [0] : (tensor<?x5xf32>, tensor<5x3xf32>) -> tensor<?x3xf32>
    %23 = stablehlo.convert %arg0 : (tensor<i32>) -> tensor<f32>
    %24 = stablehlo.dynamic_broadcast_in_dim %23, %25, dims = [] : (tensor<f32>, tensor<2xi32>) -> tensor<?x3xf32>
    %26 = stablehlo.add %22, %24 : tensor<?x3xf32>
    return %26 : tensor<?x3xf32>
  }
}
""".replace("    %24 =", "    %three = stablehlo.constant dense<3> : tensor<1xi32>\n    %25 = "
            "stablehlo.concatenate %4, %three, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> "
            "tensor<2xi32>\n    %24 =")


def _meant(x: np.ndarray) -> np.ndarray:
    count = len(x)
    joined = np.concatenate([x.reshape(-1), np.arange(count, dtype=np.float32)])
    return joined.reshape(count, 5) @ np.ones((5, 3), np.float32) + np.float32(count)


def test_one_program_runs_all_sizes() -> None:
    module = weft.compile(from_stablehlo(TEXT))
    assert [(port.name, port.shape) for port in module.inputs] == [("x", ("x_dim0", 4))]
    for count in (1, 3, 8):
        x = np.random.default_rng(count).random((count, 4), np.float32)
        np.testing.assert_allclose(module(x), _meant(x), rtol=1e-5)


def test_sizes_are_named_and_numbered() -> None:
    named = from_stablehlo(TEXT, inputs={"x": ("batch", 4)})
    assert "batch" in str(named)
    fixed = weft.compile(from_stablehlo(TEXT, inputs={"x": (2, 4)}))
    x = np.ones((2, 4), np.float32)
    np.testing.assert_allclose(fixed(x), _meant(x), rtol=1e-5)


@pytest.mark.parametrize(("inputs", "error", "message"), [
    ({"y": ("n", 4)}, InvalidModelError, "no input 'y'"),
    ({"x": ("n",)}, InvalidModelError, "wrong length"),
    ({"x": ("n", 5)}, UnsupportedModelError, "a fixed size"),
])
def test_shapes_that_do_not_fit(inputs, error, message) -> None:
    with pytest.raises(error, match=message):
        from_stablehlo(TEXT, inputs=inputs)


# The size n // 2, as JAX computes it: the quotient, one less if signs differ and a rest is left.
HALF = """module {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %c = stablehlo.constant dense<2> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
    %1 = stablehlo.divide %0, %c : tensor<i32>
    %2 = stablehlo.sign %0 : tensor<i32>
    %3 = stablehlo.sign %c : tensor<i32>
    %4 = stablehlo.compare NE, %2, %3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %5 = stablehlo.remainder %0, %c : tensor<i32>
    %6 = stablehlo.compare NE, %5, %zero, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %7 = stablehlo.and %4, %6 : tensor<i1>
    %8 = stablehlo.subtract %1, %one : tensor<i32>
    %9 = stablehlo.select %7, %8, %1 : tensor<i1>, tensor<i32>
    %10 = stablehlo.reshape %9 : (tensor<i32>) -> tensor<1xi32>
    %start = stablehlo.constant dense<0> : tensor<1xi32>
    %step = stablehlo.constant dense<1> : tensor<1xi32>
    %11 = stablehlo.real_dynamic_slice %x, %start, %10, %step : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) -> tensor<?xf32>
    return %11 : tensor<?xf32>
  }
}"""


def test_quotients_of_sizes() -> None:
    module = weft.compile(from_stablehlo(HALF))
    for count in (2, 5, 9):
        x = np.arange(count, dtype=np.float32)
        assert module(x).tolist() == x[:count // 2].tolist()
