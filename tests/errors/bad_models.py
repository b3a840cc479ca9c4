"""What the tests of bad models share: a good small model to damage, and how messages compare."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from weft.frontend.onnx import from_onnx
from weft.support.errors import WeftError


def make_model(
    nodes: Sequence[NodeProto],
    *,
    inputs: Sequence[tuple[str, Sequence[Any]]] = (("x", (2, 3)),),
    outputs: Sequence[str] = ("y",),
    initializers: Sequence[TensorProto] = (),
    opset: int = 13,
    dtype: int = TensorProto.FLOAT,
) -> ModelProto:
    """A model that nothing has checked."""
    graph = helper.make_graph(
        list(nodes),
        "bad",
        [helper.make_tensor_value_info(n, dtype, s) for n, s in inputs],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def good_model() -> ModelProto:
    """relu(x) + w"""
    weight = numpy_helper.from_array(np.float32([1, 2, 3]), "w")
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("Add", ["r", "w"], ["y"], name="sum"),
    ]
    return make_model(nodes, initializers=[weight])


def error_of(build: Callable[[], object], kind: type[WeftError]) -> WeftError:
    """The error that ``build`` raises; it must be ``kind`` itself."""
    with pytest.raises(WeftError) as caught:
        build()
    assert type(caught.value) is kind, str(caught.value)
    return caught.value


def assert_refused(model: Any, kind: type[WeftError], message: str, **options: Any) -> None:
    """Importing ``model`` raises ``kind`` with exactly this text."""
    error = error_of(lambda: from_onnx(model, **options), kind)
    assert str(error) == textwrap.dedent(message).strip(), str(error)
