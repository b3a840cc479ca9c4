"""torchvision's own operators, whose definitions stand here: they need no torchvision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.frontend.torch.check import AsModule, check, normal, uniform

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

_REGIONS = ("Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
            "SymInt pooled_width")
_NUMBERS = ", ".join(f"SymInt {name}" for name in (
    "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w", "groups",
    "offset_groups"))
_TENSORS = "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias"
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_REGIONS}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool({_REGIONS}) -> (Tensor, Tensor)",
    f"deform_conv2d({_TENSORS}, {_NUMBERS}, bool use_mask) -> Tensor",
)


def _nms(boxes: Any, scores: Any, overlap: float) -> Any:
    low, high = boxes[:, None, :2].maximum(boxes[:, :2]), boxes[:, None, 2:].minimum(boxes[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    hides = (shared / (area[:, None] + area - shared)).double() > overlap
    kept: list[int] = []
    for i in scores.argsort(descending=True, stable=True).tolist():
        if not any(hides[i, j] for j in kept):
            kept.append(i)
    return torch.tensor(kept, dtype=torch.int64)


def _centres(x: Any, rois: Any, scale: float, rows: int, columns: int, *_: Any) -> Any:
    """What roi_align gives inside an image whose pixels are linear in their coordinates."""
    low, high = rois[:, 1:3] * scale - 0.5, rois[:, 3:] * scale - 0.5
    across = low[:, :1] + (high - low)[:, :1] * (torch.arange(columns) + 0.5) / columns
    down = low[:, 1:] + (high - low)[:, 1:] * (torch.arange(rows) + 0.5) / rows
    steps = x[:, :, 1, 0] - x[:, :, 0, 0], x[:, :, 0, 1] - x[:, :, 0, 0]
    image = rois[:, 0].long()
    start, by_row, by_column = (t[image][:, :, None, None] for t in (x[:, :, 0, 0], *steps))
    return start + by_row * down[:, None, :, None] + by_column * across[:, None, None]


def _largest(x: Any, rois: Any, *_: Any) -> Any:
    """What roi_pool gives for a single bin and whole numbers."""
    found = [x[n, :, b:d + 1, a:c + 1].amax((1, 2)) for n, a, b, c, d in rois.long().tolist()]
    return torch.stack(found)[:, :, None, None], torch.zeros(len(found), 1, 1, 1)


def _unmoved(x: Any, weight: Any, offset: Any, mask: Any, bias: Any, *numbers: Any) -> Any:
    """What deform_conv2d gives for offsets of 0."""
    step, padding, distance, groups = numbers[:2], numbers[2:4], numbers[4:6], numbers[7]
    taps = torch.nn.functional.unfold(x, weight.shape[2:], distance, padding, step)
    height, width = mask.shape[2:] if numbers[8] else offset.shape[2:]
    taps = taps.reshape(len(x), groups, x.shape[1] // groups, -1, height, width)
    if numbers[8]:
        taps = taps * mask.reshape(len(x), groups, 1, -1, height, width)
    rows = taps.reshape(len(x), -1, height, width)
    kernel = weight.reshape(len(weight), -1, 1, 1)
    return torch.nn.functional.conv2d(rows, kernel, bias, groups=numbers[6])


def _defined() -> Any:
    """torchvision's operators; with torchvision in use they are its own."""
    if hasattr(torch.ops.torchvision, "nms"):
        return None
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    for name, function in (("nms", _nms), ("roi_align", _centres), ("roi_pool", _largest),
                           ("deform_conv2d", _unmoved)):
        library.impl(name, function, "CPU")
        if name != "nms":
            library.impl(name, function if name == "deform_conv2d" else _shapes(name), "Meta")
    torch.library.register_fake("torchvision::nms", _fake_nms, lib=library)
    return library


def _fake_nms(boxes: Any, _scores: Any, _overlap: float) -> Any:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _shapes(name: str) -> Any:
    def fake(x: Any, rois: Any, _scale: float, rows: int, columns: int, *_: Any) -> Any:
        made = x.new_empty(rois.shape[0], x.shape[1], rows, columns)
        return made if name == "roi_align" else (made, made.int())

    return fake


LIBRARY = _defined()
ops = torch.ops.torchvision


def _boxes(count: int) -> Any:
    corners = uniform(count, 2, low=0.0, high=20.0)
    return torch.cat([corners, corners + uniform(count, 2, low=4.0, high=12.0, seed=1)], 1)


def _detections(boxes: Any, scores: Any) -> Any:
    """The end of a detector: a threshold, suppression, and the boxes that stay."""
    above = scores > 0.2
    boxes, scores = boxes[above], scores[above]
    kept = ops.nms(boxes, scores, 0.3)
    return boxes[kept], scores[kept], kept


def test_the_end_of_a_detector_is_one_program():
    first = _boxes(30), uniform(30, seed=2, low=0.0)
    mod = weft.compile(AsModule(_detections).eval(), example_inputs=first)
    # Two that overlap by 0.3 of float32: above 0.3, and above no larger number of float32.
    assert np.float32(6) / np.float32(20) == np.float32(0.3) > np.float64(0.3)
    pair = torch.tensor([[100.0, 0.0, 113.0, 1.0], [107.0, 0.0, 120.0, 1.0]])
    edge = torch.cat([pair, first[0][2:]]), 0.3 + first[1]
    for inputs in (first, edge, (first[0], first[1] * 0.1)):
        for mine, theirs in zip(mod(*inputs), _detections(*inputs), strict=True):
            np.testing.assert_array_equal(mine, theirs.numpy())


def test_regions():
    ramp = torch.arange(12.0)[:, None] * 2 + torch.arange(16.0) - normal(2, 3, 1, 1)
    rois = torch.tensor([[0, 4.0, 6.0, 20.0, 18.0], [1, 2.0, 2.0, 9.0, 20.0]])
    check(lambda x, r: ops.roi_align(x, r, 0.5, 3, 2, 2, True), ramp, rois, atol=1e-5)
    check(lambda x, r: ops.roi_pool(x, r, 1.0, 1, 1)[0], normal(2, 3, 24, 24), rois)


@pytest.mark.parametrize("has_mask", [False, True])
def test_deformable_convolution(has_mask):
    inputs = (normal(1, 4, 6, 7), normal(6, 2, 3, 3), torch.zeros(1, 36, 3, 7),
              uniform(1, 18, 3, 7) if has_mask else torch.zeros(1, 1), normal(6))
    check(lambda *xs: ops.deform_conv2d(*xs, 2, 1, 1, 1, 1, 1, 2, 2, has_mask), *inputs,
          rtol=1e-4, atol=1e-4)
