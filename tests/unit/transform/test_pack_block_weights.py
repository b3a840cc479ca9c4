"""Weights that arithmetic makes of small integers are read in blocks."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import check_example
from weft import ir, op
from weft.ir import Constant, Expr, Function, IRModule, TensorType, Var, infer_type
from weft.transform import PackBlockWeights, evaluate

N, K, GROUP = 24, 128, 32
RNG = np.random.default_rng(3)
CODES = RNG.integers(-8, 8, (N, K)).astype(np.int8)
SCALES = RNG.uniform(0.5, 1, (N, K // GROUP, 1)).astype(np.float32)
ZEROS = RNG.integers(-8, 8, (N, K // GROUP, 1)).astype(np.int8)
BYTES = RNG.integers(-128, 128, (N, K)).astype(np.int8)


def module_of(body: Callable[[Expr], Expr], *shape: int, dtype: str = "float32") -> IRModule:
    x = Var("x", TensorType(shape or (3, K), ir.DType.of(dtype)))
    return infer_type(IRModule.from_expr(Function((x,), body(x))))


def in_groups(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, dtype: str
              ) -> Expr:
    """The arithmetic that torchao's modules have: [N, K / group, group] and back."""
    apart = op.reshape(Constant(codes), newshape=(N, -1, GROUP))
    real = op.cast(apart, dtype=dtype)
    if zeros is not None:
        real = op.subtract(real, op.cast(Constant(zeros), dtype=dtype))
    scaled = op.multiply(real, op.cast(Constant(scales), dtype=dtype))
    return op.reshape(scaled, newshape=(N, K))


def packed(module: IRModule, data: np.ndarray, tolerance: float = 1e-5) -> str:
    """The program after the pass, which computes the same."""
    result = PackBlockWeights()(module)
    wide, narrow = (np.asarray(evaluate(m, [data]), np.float32) for m in (module, result))
    np.testing.assert_allclose(narrow, wide, rtol=tolerance, atol=tolerance * np.abs(wide).max())
    return str(result)


def test_example() -> None:
    check_example(PackBlockWeights())


@pytest.mark.parametrize(("zeros", "dtype", "tolerance", "format"), [
    (None, "float32", 1e-5, "int4_g32_f32"), (ZEROS, "float32", 1e-5, "int4_g32_f32_z"),
    (None, "bfloat16", 2e-2, "int4_g32"), (ZEROS, "float16", 1e-2, "int4_g32_f32_z")])
def test_groups_of_torch(zeros: np.ndarray | None, dtype: str, tolerance: float, format: str
                         ) -> None:
    module = module_of(lambda x: op.nn.dense(x, in_groups(CODES, SCALES, zeros, dtype)),
                       dtype=dtype)
    data = RNG.normal(size=(3, K)).astype(ir.DType.of(dtype).numpy)
    assert f'format="{format}"' in packed(module, data, tolerance)


def test_int4_constants_of_onnx_along_the_first_axis() -> None:
    def body(x: Expr) -> Expr:
        wide = op.cast(Constant(CODES.T.astype(ml_dtypes.int4)), dtype="int32")
        scales = op.take(Constant(SCALES[..., 0].T.astype(np.float32)),
                         Constant(np.arange(K) // GROUP), axis=0, mode="clip")
        return op.nn.matmul(x, op.multiply(op.cast(wide, dtype="float32"), scales))

    assert 'format="int4_g32_f32"' in packed(module_of(body), np.ones((3, K), np.float32))


def test_a_scale_per_row() -> None:
    def body(x: Expr) -> Expr:
        real = op.qnn.dequantize(Constant(BYTES), Constant(SCALES[:, 0, 0]),
                                 Constant(np.zeros(N, np.int32)), axis=0)
        return op.nn.matmul(x, op.transpose(real))

    module = infer_type(module_of(body))
    text = weft.compile(module).as_text("lowered")
    assert "nn.block_quantized_dense" in text
    assert 'format="int8_g128_f32"' in text


def test_a_lookup_of_rows_expands_these_alone() -> None:
    ids = Constant(np.array([3, 0, 23]))
    module = module_of(lambda x: op.add(x, op.take(in_groups(CODES, SCALES, None, "float32"), ids,
                                                   axis=0)))
    text = packed(module, np.zeros((3, K), np.float32))
    assert "nn.block_dequantize(%" in text
    assert "take(const" in text or "take(meta" in text


def test_one_constant_serves_all_that_read_a_weight() -> None:
    weight = in_groups(CODES, SCALES, None, "float32")
    module = module_of(lambda x: op.add(op.nn.dense(x, weight), op.nn.dense(op.tanh(x), weight)))
    result = PackBlockWeights()(module)
    found = {n for n in ir.post_order(result["main"]) if isinstance(n, Constant)
             and n.data.dtype == np.uint8}
    assert len(found) == 1


@pytest.mark.parametrize("body", [
    # Levels of a table; exponentials; a scale of each element; groups that no format has.
    lambda x: op.nn.dense(x, op.take(Constant(np.arange(16, dtype=np.float32) ** 1.5),
                                     op.cast(Constant(CODES & 15), dtype="int32"))),
    lambda x: op.nn.dense(x, op.exp(op.cast(Constant(CODES), dtype="float32"))),
    lambda x: op.nn.dense(x, op.multiply(op.cast(Constant(CODES), dtype="float32"),
                                         Constant(RNG.uniform(1, 2, (N, K)).astype(np.float32)))),
    lambda x: op.nn.dense(op.strided_slice(x, begin=(0,), end=(100,), strides=(1,), axes=(1,)),
                          op.cast(Constant(CODES[:, :100].copy()), dtype="float32")),
    lambda x: op.nn.dense(op.cast(x, dtype="int32"), op.cast(Constant(CODES), dtype="int32")),
], ids=["table", "exponentials", "elements", "groups", "integers"])
def test_other_arithmetic_stays(body: Callable[[Expr], Expr]) -> None:
    assert "block_quantized" not in packed(module_of(body), np.ones((3, K), np.float32))
