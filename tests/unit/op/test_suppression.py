"""Non-maximum suppression of more boxes than are compared at once."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.ir import OPS


@pytest.mark.parametrize("overlap", [0.1, 0.9], ids=["few", "many"])
def test_kept_boxes_are_those_of_the_reference(overlap: float) -> None:
    rng = np.random.default_rng(3)
    corner, size = rng.uniform(0, 1, (2, 1, 150, 2))
    # Of some boxes the corners are given in the opposite order.
    corners = np.stack([corner, corner + 0.3 * size], 2)[:, :, ::-1]
    boxes = corners.reshape(1, 150, 4).astype(np.float32)
    scores = rng.uniform(0, 1, (1, 2, 150)).astype(np.float32)
    scores[0, 0, ::37] = np.nan  # is no candidate
    scores[0, 1, ::5] = 0.5  # ties keep their order
    operands = (boxes, scores, np.asarray(140, np.int64), np.asarray(overlap, np.float32),
                np.asarray(0.05, np.float32))
    names = ", ".join(f"%x{i}" for i in range(5))
    params = ", ".join(f"%x{i}: Tensor[({', '.join(map(str, a.shape))}), {a.dtype}]"
                       for i, a in enumerate(operands))
    module = weft.compile(weft.parse(
        f"def @main({params}) {{ vision.all_class_non_max_suppression({names}) }}"))
    reference = OPS.get("vision.all_class_non_max_suppression").reference
    assert reference is not None
    expected = reference(*operands)
    assert len(expected) > 64
    np.testing.assert_array_equal(module(*operands), expected)
