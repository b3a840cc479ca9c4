"""Resize with symbolic heights and widths gives what it gives with fixed ones."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from weft.frontend.onnx import from_onnx
from weft.ir.substitution import substitute_symbols
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

TRANSFORMS = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
              "half_pixel_symmetric", "tf_half_pixel_for_nn")
ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resizing(mode: str, transform: str, scales: list[float] | None, **attrs: Any) -> ModelProto:
    """By ``scales``, or to twice the height and three times the width."""
    names, nodes, constants = ["x", "", "", ""], [], {}
    if scales is not None:
        names[2:] = ["scales"]
        constants["scales"] = np.array(scales, np.float32)
    else:
        names[3] = "sizes"
        constants["factors"] = np.array([1, 1, 2, 3])
        nodes = [helper.make_node("Shape", ["x"], ["shape"]),
                 helper.make_node("Mul", ["shape", "factors"], ["sizes"])]
    nodes.append(helper.make_node("Resize", names, ["y"], mode=mode,
                                  coordinate_transformation_mode=transform, **attrs))
    shape = ["n", 2, "h", "w"]
    graph = helper.make_graph(
        nodes, "resize", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_sizes_put_in_before_or_after_the_import(mode: str, transform: str) -> None:
    roundings = ROUNDING if mode == "nearest" else (None,)
    rng = np.random.default_rng(0)
    for rounding, scales in itertools.product(roundings, ([1, 1, 2, 1.5], [1, 1, 0.5, 0.75], None)):
        attrs = {} if rounding is None else {"nearest_mode": rounding}
        model = resizing(mode, transform, scales, **attrs)
        general = from_onnx(model)
        for height, width in ((4, 5), (7, 3)):
            x = rng.uniform(-1, 1, (2, 2, height, width)).astype(np.float32)
            expected = evaluate(from_onnx(model, inputs={"x": x.shape}), [x])
            sizes = {"n": 2, "h": height, "w": width}
            actual = evaluate(substitute_symbols(general, sizes), [x])
            assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attrs", [{"antialias": 1}, {"exclude_outside": 1}])
def test_taps_that_depend_on_the_size_are_refused(attrs: dict[str, int]) -> None:
    with pytest.raises(UnsupportedModelError, match="Resize of symbolic sizes"):
        from_onnx(resizing("cubic", "half_pixel", [1, 1, 0.5, 0.5], **attrs))


def test_scales_that_floats_round_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="Resize of a symbolic size by"):
        from_onnx(resizing("linear", "half_pixel", [1, 1, 0.7, 0.7]))
