"""Converters that move and select elements, and reductions, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.frontend.onnx.onnx_cases import assert_agrees, make_model, run_weft, single
from weft.frontend.onnx import from_onnx
from weft.ir.expr import Constant
from weft.ir.substitution import substitute_symbols
from weft.ir.types import TensorType
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

RNG = np.random.default_rng(13)
X = RNG.uniform(-1, 1, (2, 3, 4)).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize("target", [(6, 4), (0, -1), (-1,), (2, 0, 2, 2), (1, 2, 3, 4)])
def test_reshape(target: tuple[int, ...]) -> None:
    assert_agrees(*single("Reshape", [X, ints(*target)], constant=(1,)))


def test_reshape_of_no_elements_with_allowzero() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert_agrees(*single("Reshape", [empty, ints(3, 0)], constant=(1,), allowzero=1))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten(axis: int) -> None:
    assert_agrees(*single("Flatten", [X], axis=axis))


@pytest.mark.parametrize("attrs", [{}, {"perm": [2, 0, 1]}])
def test_transpose(attrs: dict[str, Any]) -> None:
    assert_agrees(*single("Transpose", [X], **attrs))


@pytest.mark.parametrize("axes", [(0,), (1, 3), (0, 4), (-1,), (3, 0)])
def test_unsqueeze(axes: tuple[int, ...]) -> None:
    assert_agrees(*single("Unsqueeze", [X, ints(*axes)], constant=(1,)))
    if min(axes) >= 0:
        assert_agrees(*single("Unsqueeze", [X], opset=9, axes=list(axes)))


@pytest.mark.parametrize("axes", [(0,), (2,), (0, -2), None])
def test_squeeze(axes: tuple[int, ...] | None) -> None:
    x = X[:1, :, None]
    arrays = [x] if axes is None else [x, ints(*axes)]
    assert_agrees(*single("Squeeze", arrays, constant=(1,) if axes is not None else ()))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("count", [1, 3])
def test_concat(axis: int, count: int) -> None:
    assert_agrees(*single("Concat", [X] * count, axis=axis))


@pytest.mark.parametrize("opset", [7, 11, 13, 18])
def test_split_into_given_sizes(opset: int) -> None:
    if opset < 13:
        assert_agrees(*single("Split", [X], opset=opset, outputs=2, axis=2, split=[1, 3]))
    else:
        model = single("Split", [X, ints(1, 3)], opset=opset, constant=(1,), outputs=2, axis=2)
        assert_agrees(*model)


def test_split_evenly() -> None:
    assert_agrees(*single("Split", [X], opset=13, outputs=3, axis=1))
    assert_agrees(*single("Split", [X], opset=18, outputs=2, axis=1, num_outputs=2))


@pytest.mark.parametrize(
    ("starts", "ends", "axes", "steps"),
    [
        ((1, 0), (2, 3), None, None),
        ((-2,), (2**40,), (2,), None),
        ((3,), (-(2**40),), (-1,), (-2,)),
        ((0, 1), (9, -1), (2, 1), (3, 1)),
        ((2,), (1,), (0,), None),
    ],
)
def test_slice(starts: Any, ends: Any, axes: Any, steps: Any) -> None:
    extra = [None if v is None else ints(*v) for v in (axes, steps)]
    arrays = [X, ints(*starts), ints(*ends), *extra]
    fixed = [i for i in range(1, 5) if arrays[i] is not None]
    assert_agrees(*single("Slice", arrays, constant=fixed))


def test_slice_by_attributes() -> None:
    assert_agrees(*single("Slice", [X], opset=9, starts=[0, -2], ends=[2, 100], axes=[1, 2]))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("constant", [(), (1,)])
def test_gather(axis: int, dtype: type, constant: tuple[int, ...]) -> None:
    indices = np.array([[0, 1], [-1, 0]], dtype)
    assert_agrees(*single("Gather", [X, indices], constant=constant, axis=axis))


def test_gather_of_one_row() -> None:
    assert_agrees(*single("Gather", [X, np.asarray(np.int64(1))], constant=(1,), axis=1))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pad(mode: str) -> None:
    pads = ints(0, 1, 2, 1, 0, 1)
    arrays = [X, pads] + ([np.asarray(np.float32(0.5))] if mode == "constant" else [])
    fixed = range(1, len(arrays))
    assert_agrees(*single("Pad", arrays, constant=fixed, mode=mode))


def test_pad_by_attributes() -> None:
    assert_agrees(*single("Pad", [X], opset=9, pads=[0, 1, 0, 1, 0, 2], value=3.0))


def test_negative_padding_crops() -> None:
    assert_agrees(*single("Pad", [X, ints(0, -1, 1, 0, 0, -2)], constant=(1,)))


@pytest.mark.parametrize("target", [(3, 1), (2, 3, 4), (2, 2, 3, 1), (1,)])
def test_expand(target: tuple[int, ...]) -> None:
    assert_agrees(*single("Expand", [X[:, :, :1], ints(*target)], constant=(1,)))


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
@pytest.mark.parametrize("axes", [(1,), (0, -1), None])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reduce(op: str, axes: tuple[int, ...] | None, keepdims: int) -> None:
    attrs = {} if axes is None else {"axes": list(axes)}
    assert_agrees(*single(op, [X], opset=11, keepdims=keepdims, **attrs))
    arrays = [X] if axes is None else [X, ints(*axes)]
    fixed = () if axes is None else (1,)
    assert_agrees(*single(op, arrays, opset=18, constant=fixed, keepdims=keepdims))


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin", "ReduceSum", "ReduceProd"])
def test_reduction_of_no_elements_is_neutral(op: str) -> None:
    model, feeds = single(op, [np.zeros((2, 0, 3), np.float32), ints(1)], opset=18, constant=(1,))
    (result,) = run_weft(model, feeds)
    neutral = {"ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceSum": 0, "ReduceProd": 1}[op]
    np.testing.assert_array_equal(result, np.full((2, 1, 3), neutral, np.float32))


def test_reduce_without_axes_can_do_nothing() -> None:
    assert_agrees(*single("ReduceSum", [X], opset=18, noop_with_empty_axes=1))


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_arg_reduce(op: str, last: int, keepdims: int) -> None:
    x = RNG.integers(0, 3, (3, 6)).astype(np.float32)
    assert_agrees(*single(op, [x], axis=1, select_last_index=last, keepdims=keepdims))


def test_constant_of_shape() -> None:
    value = helper.make_tensor("v", TensorProto.INT64, [1], [7])
    assert_agrees(*single("ConstantOfShape", [ints(2, 3)], constant=(0,), value=value))
    assert_agrees(*single("ConstantOfShape", [ints(2, 3)], constant=(0,)))


@pytest.mark.parametrize(
    "attrs",
    [
        {"value_float": 1.5},
        {"value_floats": [1.0, 2.0]},
        {"value_int": 3},
        {"value_ints": [1, 2]},
        {"value": helper.make_tensor("v", TensorProto.FLOAT16, [2], [1.0, 2.0])},
    ],
)
def test_constant(attrs: dict[str, Any]) -> None:
    assert_agrees(*single("Constant", [], **attrs))


def test_range() -> None:
    arrays = [np.asarray(np.float32(v)) for v in (1.0, 4.0, 0.5)]
    assert_agrees(*single("Range", arrays, constant=(0, 1, 2)))


def flattening_model(dims: list[Any]) -> Any:
    """Reshape to (d0, -1), with the target computed from the shape as exporters do it."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axes"], ["batch1"]),
        helper.make_node("Concat", ["batch1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.asarray(np.int64(0)), "axes": ints(0), "rest": ints(-1)}
    return make_model(nodes, {"x": (dims, TensorProto.FLOAT)}, ["y"], constants=constants)


def test_shapes_computed_by_nodes_fold_away() -> None:
    model = flattening_model([2, 3, 4])
    (result,) = run_weft(model, {"x": X})
    np.testing.assert_array_equal(result, X.reshape(2, 12))
    call = from_onnx(model)["main"].body
    assert call.op.name == "reshape"
    assert not any(isinstance(a, Constant) for a in call.args)


def test_symbolic_shapes_computed_by_nodes() -> None:
    module = from_onnx(flattening_model(["batch", 3, 4]))
    assert module["main"].body.checked_type == TensorType.of(("batch", 12))


@pytest.mark.parametrize("target", [(1, 12), (2, 6), (12,)])
def test_a_reshape_to_fixed_sizes_determines_a_symbolic_size(target: tuple[int, ...]) -> None:
    """It holds for one batch size alone, and would read beyond the others."""
    node = helper.make_node("Reshape", ["x", "target"], ["y"])
    model = make_model([node], {"x": (("batch", 3, 4), TensorProto.FLOAT)}, ["y"],
                       constants={"target": ints(*target)})  # fmt: skip
    for module in (from_onnx(model), from_onnx(model, inputs={"x": (1, 3, 4)})):
        assert module["main"].params[0].checked_type == TensorType.of((1, 3, 4))
        assert module["main"].body.checked_type.shape == target
    with pytest.raises(UnsupportedModelError, match="a different number of elements"):
        from_onnx(model, inputs={"x": ("batch >= 2", 3, 4)})


def test_symbolic_sizes_are_data_where_nodes_need_them() -> None:
    nodes = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    model = make_model(
        nodes, {"x": (["n"], TensorProto.FLOAT)}, ["y"], output_type=TensorProto.INT64
    )
    for size in (0, 3):
        result = evaluate(substitute_symbols(from_onnx(model), {"n": size}),
                          [np.zeros(size, np.float32)])
        np.testing.assert_array_equal(result, [size])
