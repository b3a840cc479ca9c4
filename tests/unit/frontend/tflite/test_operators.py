"""Float operators of TensorFlow Lite compute what NumPy does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.frontend.tflite import operator_table
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file
from weft.frontend.tflite import from_tflite
from weft.ir.dtype import DType
from weft.ir.types import TensorType
from weft.transform.analysis.reference import evaluate

RNG = np.random.default_rng(0)
X, Y = (RNG.normal(size=(2, 3, 4)).astype(np.float32) for _ in range(2))
IMAGE = RNG.normal(size=(1, 5, 6, 4)).astype(np.float32)
KERNEL = RNG.normal(size=(3, 2, 3, 4)).astype(np.float32)
DEPTHWISE = RNG.normal(size=(1, 3, 2, 8)).astype(np.float32)
ROWS = RNG.normal(size=(3, 5)).astype(np.float32)


def run(data: bytes, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of a file by the reference interpreter."""
    module = from_tflite(data)
    result: Any = evaluate(module, arrays)
    return result if isinstance(result, tuple) else (result,)


def one(name: str, operands: list[Any], *, constant: tuple[int, ...] = (), table: str = "",
        results: tuple[tuple[int, ...], ...] = ((),), dtypes: tuple[str, ...] = ("float32",),
        **options: Any) -> tuple[np.ndarray, ...]:
    """The results of one operator; operands at the positions ``constant`` are constants."""
    arrays = [np.asarray(a) for a in operands]
    tensors = [T(a.shape, str(a.dtype), a if i in constant else None)
               for i, a in enumerate(arrays)]
    outputs = [T(shape, dtype) for shape, dtype in zip(results, dtypes, strict=True)]
    first = len(tensors)
    made = list(range(first, first + len(outputs)))
    free = [i for i in range(first) if i not in constant]
    graph = Graph([*tensors, *outputs], free, made,
                  [Op(name, range(first), made, table, options)])
    return run(tflite_file(graph), *(arrays[i] for i in free))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def convolved(x: np.ndarray, w: np.ndarray, before: tuple[int, int], out: tuple[int, int],
              step: int) -> np.ndarray:
    """``w`` is (height, width, input, output); what is outside of ``x`` is zero."""
    big = np.zeros((1, 40, 40, x.shape[3]), np.float32)
    big[:, 10:10 + x.shape[1], 10:10 + x.shape[2]] = x
    result = np.zeros((1, *out, w.shape[3]), np.float32)
    for i in range(out[0]):
        for j in range(out[1]):
            top, left = 10 + i * step - before[0], 10 + j * step - before[1]
            part = big[0, top:top + w.shape[0], left:left + w.shape[1]]
            result[0, i, j] = np.einsum("hwi,hwio->o", part, w)
    return result


def depthwise_kernel() -> np.ndarray:
    """The depthwise kernel as a full one: output ``2 * c + m`` reads channel ``c`` alone."""
    full = np.zeros((3, 2, 4, 8), np.float32)
    for channel in range(4):
        for m in range(2):
            full[:, :, channel, 2 * channel + m] = DEPTHWISE[0, :, :, 2 * channel + m]
    return full


SIGMOID = 1 / (1 + np.exp(-X))
CASES: dict[str, tuple[Any, Any]] = {
    "ABS": (lambda: one("ABS", [X]), np.abs(X)),
    "LOGISTIC": (lambda: one("LOGISTIC", [X]), SIGMOID),
    "RELU6": (lambda: one("RELU6", [X * 9]), np.clip(X * 9, 0, 6)),
    "ADD with RELU": (lambda: one("ADD", [X, Y[:, :1]], table="AddOptions",
                                  FusedActivationFunction=1), np.maximum(X + Y[:, :1], 0)),
    "DIV of integers": (lambda: one("DIV", [ints(7, -7), ints(2, 2)], dtypes=("int32",)),
                        ints(3, -3)),
    "PRELU": (lambda: one("PRELU", [X, Y[0, 0]], constant=(1,)), np.where(X >= 0, X, X * Y[0, 0])),
    "SELECT of rows": (lambda: one("SELECT", [np.array([True, False]), X, Y]),
                       np.where(np.array([True, False])[:, None, None], X, Y)),
    "CAST to bool": (lambda: one("CAST", [ints(0, 5)], dtypes=("bool",)), np.array([False, True])),
    "CONV_2D": (lambda: one("CONV_2D", [IMAGE, KERNEL, ROWS[:, 0]], constant=(1, 2),
                            table="Conv2DOptions", StrideH=2, StrideW=2),
                convolved(IMAGE, KERNEL.transpose(1, 2, 3, 0), (0, 0), (3, 3), 2) + ROWS[:, 0]),
    "DEPTHWISE_CONV_2D": (lambda: one("DEPTHWISE_CONV_2D", [IMAGE, DEPTHWISE], constant=(1,),
                                      table="DepthwiseConv2DOptions", StrideH=1, StrideW=1,
                                      DepthMultiplier=2),
                          convolved(IMAGE, depthwise_kernel(), (1, 0), (5, 6), 1)),
    "FULLY_CONNECTED": (lambda: one("FULLY_CONNECTED", [X[:, 0], Y[0], ROWS[:, 0]],
                                    constant=(1, 2)), X[:, 0] @ Y[0].T + ROWS[:, 0]),
    "BATCH_MATMUL": (lambda: one("BATCH_MATMUL", [X, Y], table="BatchMatMulOptions", AdjY=True),
                     X @ Y.transpose(0, 2, 1)),
    "SOFTMAX with beta": (lambda: one("SOFTMAX", [X], table="SoftmaxOptions", Beta=2.0),
                          np.exp(2 * X) / np.exp(2 * X).sum(-1, keepdims=True)),
    "MEAN": (lambda: one("MEAN", [X, ints(1)], constant=(1,), table="ReducerOptions",
                         KeepDims=True), X.mean(1, keepdims=True)),
    "RESHAPE": (lambda: one("RESHAPE", [X, ints(4, -1)], constant=(1,)), X.reshape(4, 6)),
    "CONCATENATION": (lambda: one("CONCATENATION", [X, Y], table="ConcatenationOptions", Axis=-1),
                      np.concatenate([X, Y], -1)),
    "PACK": (lambda: one("PACK", [X, Y], table="PackOptions", Axis=1), np.stack([X, Y], 1)),
    "PADV2": (lambda: one("PADV2", [ROWS, np.array([[1, 0], [0, 2]], np.int32), np.float32(7)],
                          constant=(1, 2)), np.pad(ROWS, ((1, 0), (0, 2)), constant_values=7)),
    "STRIDED_SLICE": (lambda: one("STRIDED_SLICE", [X, ints(0, 1, -1), ints(0, 3, 0),
                                                    ints(1, 1, -2)], constant=(1, 2, 3),
                                  table="StridedSliceOptions", BeginMask=1, EndMask=5,
                                  ShrinkAxisMask=0), X[:, 1:3, ::-2]),
    "STRIDED_SLICE at an index": (
        lambda: one("STRIDED_SLICE", [X, ints(-1), ints(0), ints(1)], constant=(2, 3),
                    table="StridedSliceOptions", ShrinkAxisMask=1), X[-1]),
    "SLICE at a computed start": (lambda: one("SLICE", [X, ints(0, 1, 2), ints(2, 1, 2)],
                                              constant=(2,)), X[:, 1:2, 2:]),
    "GATHER of batches": (lambda: one("GATHER", [ROWS, np.array([[4, 0], [1, 1], [2, 3]],
                                                                np.int32)],
                                      table="GatherOptions", Axis=1, BatchDims=1),
                          np.take_along_axis(ROWS, np.array([[4, 0], [1, 1], [2, 3]]), 1)),
    "ONE_HOT": (lambda: one("ONE_HOT", [ints(1, 3), ints(4).reshape(()), np.float32(2),
                                        np.float32(-1)], constant=(1, 2, 3), table="OneHotOptions",
                            Axis=-1), np.where(np.eye(4)[[1, 3]] > 0, 2, -1)),
    "DYNAMIC_UPDATE_SLICE": (lambda: one("DYNAMIC_UPDATE_SLICE",
                                         [ROWS, np.ones((2, 2), np.float32), ints(2, 1)]),
                             np.where((np.arange(15).reshape(3, 5) // 5 >= 1)
                                      & (np.arange(15).reshape(3, 5) % 5 >= 1)
                                      & (np.arange(15).reshape(3, 5) % 5 <= 2), 1, ROWS)),
    "STABLEHLO_REMAINDER": (lambda: one("STABLEHLO_REMAINDER", [ints(7, -7), ints(3, 3)],
                                        dtypes=("int32",)), ints(1, -1)),
    "STABLEHLO_OR": (lambda: one("STABLEHLO_OR", [ints(6), ints(9)], dtypes=("int32",)), ints(15)),
    "CUMSUM": (lambda: one("CUMSUM", [X, ints(1)], constant=(1,), table="CumsumOptions",
                           Exclusive=True), np.cumsum(X, 1) - X),
}


@pytest.mark.parametrize("name", CASES)
def test_an_operator_computes_what_numpy_does(name: str) -> None:
    make, expected = CASES[name]
    (found,) = make()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_several_results_keep_their_order() -> None:
    first, second = one("SPLIT", [ints(1).reshape(()), ROWS[:, :4]], constant=(0,),
                        table="SplitOptions", NumSplits=2, results=((3, 2), (3, 2)),
                        dtypes=("float32",) * 2)
    np.testing.assert_array_equal(first, ROWS[:, :2])
    np.testing.assert_array_equal(second, ROWS[:, 2:4])


def test_a_batch_of_any_size_follows_shape_arithmetic() -> None:
    tensors = [T((1, 6), signature=(-1, 6)), T((2,), "int32"), T((1,), "int32", [0]),
               T((1,), "int32", [1]), T((1,), "int32", [1]), T((), "int32"),
               T((), "int32", 3), T((), "int32", 2), T((3,), "int32"), T((1, 3, 2))]
    graph = Graph(tensors, [0], [9], [
        Op("SHAPE", [0], [1]),
        Op("STRIDED_SLICE", [1, 2, 3, 4], [5], "StridedSliceOptions", {"ShrinkAxisMask": 1}),
        Op("PACK", [5, 6, 7], [8], "PackOptions", {"ValuesCount": 3}),
        Op("RESHAPE", [0, 8], [9])])
    module = from_tflite(tflite_file(graph))
    assert str(module["main"].ret_type or module["main"].checked_type).count("batch") >= 1
    for batch in (1, 4):
        x = np.arange(batch * 6, dtype=np.float32).reshape(batch, 6)
        np.testing.assert_array_equal(evaluate(module, [x]), x.reshape(batch, 3, 2))


def test_shapes_of_inputs_are_given_by_name() -> None:
    graph = Graph([T((1, 4), name="x"), T((1, 4), name="y")], [0], [1], [Op("ABS", [0], [1])])
    module = from_tflite(tflite_file(graph), inputs={"x": (5, 4)})
    assert module["main"].params[0].checked_type == TensorType((5, 4), DType.of("float32"))
    assert module.attrs["output_names"] == ("y",)


def test_signatures_name_inputs_and_choose_a_subgraph() -> None:
    graphs = [Graph([T((2,)), T((2,))], [0], [1], [Op(name, [0], [1])]) for name in ("NEG", "ABS")]
    data = tflite_file(*graphs, signatures={"serving_default": 0, "size": 1})
    x = np.array([-1, 2], np.float32)
    np.testing.assert_array_equal(evaluate(from_tflite(data), [x]), -x)
    module = from_tflite(data, signature="size")
    assert (module.attrs["input_names"], module.attrs["output_names"]) == (("a",), ("y0",))
    np.testing.assert_array_equal(evaluate(module, [x]), abs(x))


def test_the_page_says_what_is_converted() -> None:
    """After a change: ``python -m tests.unit.frontend.tflite.operator_table``."""
    text = operator_table.PAGE.read_text(encoding="utf-8")
    assert operator_table.updated(text) == text
