"""Valid models that use what weft does not have: operators, attributes, opsets, dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.errors.bad_models import assert_refused, error_of, good_model, make_model
from weft.frontend.onnx import from_onnx
from weft.frontend.onnx.tensors import supported_dtypes
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate


def test_unknown_operators_are_all_listed_with_counts() -> None:
    nodes = [
        helper.make_node("StringSplit", ["x"], ["a"], name="words"),
        *[helper.make_node("ImageDecoder", ["x"], [f"n{i}"], name=f"image{i}") for i in range(5)],
        helper.make_node("GreedySearch", ["x"], ["f"], name="search", domain="com.microsoft"),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    assert_refused(
        make_model(nodes),
        UnsupportedModelError,
        """
        E0401 the model uses 3 operators that weft does not support at opset 13
          --> <ModelProto>
          operator ImageDecoder: 5 nodes (image0, image1, image2, ...)
          operator StringSplit: 1 node (words)
          operator com.microsoft::GreedySearch: 1 node (search)
          help: register @weft.onnx_converter("ImageDecoder"), as in docs/tutorials/add_converter.md
    """,
    )


def test_operator_of_a_domain_that_is_not_imported() -> None:
    model = make_model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")])
    error = error_of(lambda: from_onnx(model), UnsupportedModelError)
    assert error.help == "the model does not import a version of 'com.microsoft' that has Gelu"


def test_misspelt_operator() -> None:
    model = make_model([helper.make_node("Relv", ["x"], ["y"], name="act")])
    error = error_of(lambda: from_onnx(model), UnsupportedModelError)
    assert error.notes == ("operator Relv: 1 node (act)",)
    assert error.help == "is 'Relv' meant to be 'Relu'?"


def test_unsupported_attributes() -> None:
    image = [("x", (1, 3, 8, 8))]
    nodes = [
        helper.make_node("RoiAlign", ["x", "x", "x"], ["p"], name="regions", mode="max"),
        helper.make_node("Relu", ["p"], ["y"], name="act", slope=2),
    ]
    assert_refused(
        make_model(nodes, inputs=image),
        UnsupportedModelError,
        """
        E0401 the model uses operator attributes that weft does not support at opset 13
          --> <ModelProto>
          attribute 'mode' = 'max' of RoiAlign: 1 node (regions)
          attribute 'slope' of Relu: 1 node (act)
    """,
    )


def test_unsupported_output() -> None:
    nodes = [
        helper.make_node("BatchNormalization", ["x"] * 5, ["n", "mean"], name="norm"),
        helper.make_node("Relu", ["mean"], ["y"]),
    ]
    error = error_of(
        lambda: from_onnx(make_model(nodes, inputs=[("x", (1, 3, 8, 8))])), UnsupportedModelError
    )
    assert error.notes == ("output 1 of BatchNormalization: 1 node (norm)",)


def test_an_older_opset_is_converted() -> None:
    model = good_model()
    model.opset_import[0].version = 6
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    np.testing.assert_array_equal(evaluate(from_onnx(model), [x]), [[2, 2, 6], [1, 7, 3]])


@pytest.mark.parametrize("opset", [0, 1, 99])
def test_unsupported_opset(opset: int) -> None:
    model = good_model()
    model.opset_import[0].version = opset
    error = error_of(lambda: from_onnx(model), UnsupportedModelError)
    assert error.what == f"the model uses ai.onnx opset {opset}"
    assert error.expected is not None
    assert error.expected.startswith("7 to ")
    assert error.help is not None


def test_no_opset() -> None:
    model = good_model()
    del model.opset_import[:]
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 the model must import exactly one ai.onnx opset
          --> <ModelProto>
          expected: one opset_import with domain ""
          got: none
    """,
    )


def test_newer_ir_version() -> None:
    model = good_model()
    model.ir_version = 1000
    error = error_of(lambda: from_onnx(model), UnsupportedModelError)
    assert error.what == "the model has ONNX IR version 1000"
    assert error.help == "upgrade the onnx package"


@pytest.mark.parametrize("name", ["STRING", "COMPLEX64"])
def test_unsupported_dtype_of_an_input(name: str) -> None:
    model = make_model(
        [helper.make_node("Identity", ["x"], ["y"])], dtype=getattr(TensorProto, name)
    )
    error = error_of(lambda: from_onnx(model), UnsupportedModelError)
    assert error.what == f"graph input 'x' has element type {name}"
    assert error.expected == f"one of {', '.join(supported_dtypes())}"


def test_number_that_is_no_dtype() -> None:
    model = good_model()
    model.graph.initializer[0].data_type = 77
    error = error_of(lambda: from_onnx(model), InvalidModelError)
    assert "77" in str(error)


def test_sparse_initializer() -> None:
    model = good_model()
    values = numpy_helper.from_array(np.float32([1]), "s")
    indices = numpy_helper.from_array(np.int64([0]), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    assert_refused(
        model,
        UnsupportedModelError,
        """
        E0401 the model has sparse initializers
          --> <ModelProto>
          got: 's'
          help: store the weights densely
    """,
    )
