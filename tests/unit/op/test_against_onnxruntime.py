"""Object detection operators compared with ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.onnxruntime_peer import run_onnxruntime
from weft import op
from weft.ir.op import Op

onnx = pytest.importorskip("onnx")


def _run(kind: str, arrays: list[np.ndarray], attrs: dict[str, Any]) -> np.ndarray:
    names = [f"x{n}" for n in range(len(arrays))]
    helper = onnx.helper
    inputs = [helper.make_tensor_value_info(
        n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, arrays,
                                                                             strict=True)]
    integer = kind == "NonMaxSuppression"
    out = helper.make_tensor_value_info(
        "y", onnx.TensorProto.INT64 if integer else onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node(kind, names, ["y"], **attrs)], "g", inputs, [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    return np.asarray(run_onnxruntime(model, dict(zip(names, arrays, strict=True)))[0])


def _reference(operator: Op, arrays: list[np.ndarray], **attrs: Any) -> np.ndarray:
    record = operator.attrs_type.make(attrs)
    return np.asarray(operator.reference(*arrays, **dict(record.items())))  # type: ignore[misc]


@pytest.mark.parametrize(("ratio", "aligned"), [(2, False), (0, True), (3, True)])
def test_roi_align(ratio: int, aligned: bool) -> None:
    rng = np.random.default_rng(0)
    data = rng.uniform(-1, 1, (2, 3, 9, 8)).astype(np.float32)
    rois = rng.uniform(0, 6, (5, 4)).astype(np.float32)
    rois[:, 2:] = rois[:, :2] + rng.uniform(1, 8, (5, 2))
    images = rng.integers(0, 2, 5)
    found = _reference(op.vision.roi_align, [data, np.column_stack([images, rois])],
                       pooled_size=(3, 2), spatial_scale=0.7, sample_ratio=ratio, aligned=aligned)
    mode = "half_pixel" if aligned else "output_half_pixel"
    expected = _run("RoiAlign", [data, rois, images], {
        "output_height": 3, "output_width": 2, "spatial_scale": 0.7, "sampling_ratio": ratio,
        "coordinate_transformation_mode": mode})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("most", [2, 20])
@pytest.mark.parametrize("center", [False, True])
def test_non_max_suppression(most: int, center: bool) -> None:
    rng = np.random.default_rng(most)
    boxes = rng.uniform(0, 1, (2, 20, 4)).astype(np.float32)
    boxes[..., 2:] = rng.uniform(0.2, 0.6, (2, 20, 2)) + (0 if center else boxes[..., :2])
    scores = rng.uniform(0, 1, (2, 3, 20)).astype(np.float32)
    arrays = [boxes, scores, np.array([most]), np.array([0.4], np.float32),
              np.array([0.3], np.float32)]
    found = _reference(op.vision.all_class_non_max_suppression, arrays, center_point_box=center)
    expected = _run("NonMaxSuppression", arrays, {"center_point_box": int(center)})
    np.testing.assert_array_equal(found, expected)


def test_max_roi_pool() -> None:
    rng = np.random.default_rng(1)
    data = rng.uniform(-1, 1, (2, 3, 9, 8)).astype(np.float32)
    rois = np.array([[0, 1, 1, 6, 7], [1, 0, 2, 3, 3], [1, 4, 4, 4, 4]], np.float32)
    found = _reference(op.vision.roi_pool, [data, rois], pooled_size=(3, 2))
    expected = _run("MaxRoiPool", [data, rois], {"pooled_shape": [3, 2]})
    np.testing.assert_array_equal(found, expected)
