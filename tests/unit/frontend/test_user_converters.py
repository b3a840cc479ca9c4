"""Users' converters of ONNX operators: typed inputs, attributes, results, and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft import op
from weft.frontend.common.typed import tensor_type
from weft.frontend.onnx.registry import CONVERTERS, converts
from weft.support.errors import InvalidModelError, OperatorError, UnsupportedModelError


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    assert weft.onnx_converter  # loads the converters of weft
    before = dict(CONVERTERS.entries)
    yield
    CONVERTERS.entries = before


def _model(nodes: list[Any], size: int = 2) -> Any:
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid("my", 1)])


def _scale(*outputs: str, **attrs: Any) -> Any:
    return helper.make_node("Scale", ["x", "", "x"], list(outputs or ("y",)), domain="my",
                            name="scale", **attrs)


def test_inputs_and_attributes_arrive_typed() -> None:
    seen = {}

    @weft.onnx_converter("my::Scale")
    def scale(node, x, absent, again, left_out=None, *, factor, axes=(), mode="none", table=None,
              unset=3):
        seen.update(absent=absent, left_out=left_out, axes=axes, mode=mode, table=table.tolist(),
                    unset=unset, type=str(tensor_type(again)))
        # Nested calls have no types yet: weft infers those of the whole result.
        return op.multiply(op.add(x, op.zeros(shape=(2,))), node.constant(factor, "float32"))

    node = _scale(factor=3.0, axes=[0, 1], mode="fast",
                  table=numpy_helper.from_array(np.array([1, 2])))
    relu = helper.make_node("Relu", ["t"], ["y"])
    node.output[0] = "t"
    y = weft.compile(_model([node, relu]))(np.array([1, -2], np.float32))
    assert y.tolist() == [3, 0]
    assert seen == {"absent": None, "left_out": None, "axes": (0, 1), "mode": "fast",
                    "table": [1, 2], "unset": 3, "type": "Tensor[(2,), float32]"}


def test_results_of_the_registry_of_weft_itself_are_typed_too() -> None:
    @converts("my::Scale")
    def scale(node):
        return op.add(op.exp(node.input(0)), node.input(0))

    assert weft.compile(_model([_scale()]))(np.zeros(2, np.float32)).tolist() == [1, 1]


def test_several_results() -> None:
    @weft.onnx_converter("my::Scale")
    def scale(node, x, *others):
        return op.negative(x), op.exp(x)

    add = helper.make_node("Add", ["a", "b"], ["y"])
    assert weft.compile(_model([_scale("a", "b"), add]))(np.zeros(2, np.float32)).tolist() == [1, 1]


@pytest.mark.parametrize("result", [None, 3, np.ones(2), (), (None,)])
def test_a_result_that_is_no_expression(result: Any) -> None:
    @weft.onnx_converter("my::Scale")
    def scale(node, *inputs):
        return result

    with pytest.raises(OperatorError, match="converter of my::Scale returned no expression"):
        weft.compile(_model([_scale()]))


def test_nodes_that_do_not_fit_a_converter() -> None:
    @weft.onnx_converter("my::Scale")
    def scale(node, x, *, factor):
        return x

    with pytest.raises(InvalidModelError, match="more inputs than the converter takes"):
        weft.compile(_model([_scale(factor=1.0)]))
    one = helper.make_node("Scale", ["x"], ["y"], domain="my")
    with pytest.raises(InvalidModelError, match="attribute 'factor' is missing"):
        weft.compile(_model([one]))
    with pytest.raises(UnsupportedModelError, match="attribute 'speed' of Scale"):
        weft.compile(_model([_scale(factor=1.0, speed=2)]))


def test_an_unsupported_operator_says_how_to_register_one() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        weft.compile(_model([_scale()]))
    assert '@weft.onnx_converter("my::Scale")' in str(caught.value.help)
    assert "docs/tutorials/add_converter.md" in str(caught.value.help)


def test_a_converter_replaces_that_of_weft() -> None:
    @weft.onnx_converter("Relu", since=14)
    def relu(node, x):
        return op.exp(x)

    model = _model([helper.make_node("Relu", ["x"], ["y"])])
    assert weft.compile(model)(np.zeros(2, np.float32)).tolist() == [1, 1]


def test_a_converter_of_code_without_a_module() -> None:
    names = {"register": weft.onnx_converter("my::Scale"), "op": op}
    exec("@register\ndef scale(node, x, *others, factor):\n    return op.exp(x)", names)
    assert CONVERTERS.of_users() == ("my::Scale",)
    assert weft.compile(_model([_scale(factor=1.0)]))(np.zeros(2, np.float32)).tolist() == [1, 1]
