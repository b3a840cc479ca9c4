"""ConvTranspose of symbolic sizes: one program, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from tests.onnxruntime_peer import session_of
from tests.unit.frontend.onnx.onnx_cases import make_model


@pytest.mark.parametrize(("rank", "attrs"), [
    (2, {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 1]}),
    (2, {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    (1, {"strides": [2], "group": 2, "dilations": [2]}),
    (3, {"strides": [2, 1, 2]}),
])
def test_transposed_convolutions_run_at_all_sizes(rank: int, attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(rank)
    weight = rng.standard_normal((4, 3) + (3,) * rank).astype(np.float32)
    model = make_model([helper.make_node("ConvTranspose", ["x", "w"], ["y"], **attrs)],
                       {"x": (("b", "c", *"hwd"[:rank]), TensorProto.FLOAT)}, ["y"],
                       constants={"w": weight})
    compiled = weft.compile(model)
    assert compiled.is_dynamic
    assert compiled.reason is None
    session = session_of(model)
    for sizes in ((1, 5, 6, 7), (2, 1, 3, 2), (3, 9, 4, 1), (1, 32, 33, 5)):
        x = rng.standard_normal((sizes[0], 4, *sizes[1 : rank + 1])).astype(np.float32)
        expected, = session.run(None, {"x": x})
        np.testing.assert_allclose(compiled(x), expected, rtol=1e-4, atol=1e-5)
