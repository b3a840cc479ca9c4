"""Graphs that do not hang together."""

from __future__ import annotations

import itertools

from onnx import ModelProto, TensorProto, helper

from tests.errors.bad_models import assert_refused, error_of, good_model, make_model
from weft.frontend.onnx import from_onnx
from weft.support.errors import InvalidInputError, InvalidModelError, UnsupportedModelError


def test_cycle() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="first"),
        helper.make_node("Add", ["a", "c"], ["b"], name="second"),
        helper.make_node("Relu", ["b"], ["c"], name="third"),
        helper.make_node("Relu", ["c"], ["y"], name="fourth"),
    ]
    assert_refused(
        make_model(nodes),
        InvalidModelError,
        """
        E0400 the graph has a cycle
          --> <ModelProto>
          expected: a graph in which no value depends on itself
          got: second (Add) -> third (Relu) -> second (Add)
    """,
    )


def test_dangling_edges_are_all_listed() -> None:
    nodes = [
        helper.make_node("Add", ["x", "lost"], ["a"], name="sum"),
        helper.make_node("Relu", ["gone"], ["b"]),
    ]
    assert_refused(
        make_model(nodes),
        InvalidModelError,
        """
        E0400 the graph reads undefined values
          --> <ModelProto>
          expected: the name of a graph input, an initializer, or a node's output
          input 1 of sum (Add) is 'lost'
          input 0 of Relu_1 (Relu) is 'gone'
          output 'y' of the graph
          help: the model may be truncated, or cut out of a larger one
    """,
    )


def test_value_computed_twice() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["y"], name="one"),
        helper.make_node("Exp", ["x"], ["y"], name="two"),
        helper.make_node("Abs", ["y"], ["x"], name="three"),
    ]
    assert_refused(
        make_model(nodes),
        InvalidModelError,
        """
        E0400 a value of the graph is computed twice
          --> <ModelProto>
          expected: each name to be the output of one node (static single assignment)
          two (Exp) and one (Relu) compute 'y'
          three (Abs) computes 'x', an input of the graph
    """,
    )


def test_two_inputs_of_one_name() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = make_model(nodes, inputs=[("x", (2,)), ("x", (2,))])
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 duplicate input name in the graph
          --> <ModelProto>
          got: 'x'
    """,
    )


def test_no_outputs() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], outputs=[])
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 the graph does not declare outputs
          --> <ModelProto>
    """,
    )


def test_missing_input_of_a_node() -> None:
    model = make_model([helper.make_node("Relu", [""], ["y"], name="act")])
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 Relu violates its ONNX schema
          --> <ModelProto> (node act (Relu))
          Node (act)'s input 0 is marked single but has an empty string in the graph
    """,
    )


def test_input_that_is_no_tensor() -> None:
    model = good_model()
    del model.graph.input[:]
    value = helper.make_tensor_type_proto(TensorProto.FLOAT, [2, 3])
    kind = helper.make_map_type_proto(TensorProto.INT64, value)
    model.graph.input.append(helper.make_value_info("x", kind))
    assert_refused(
        model,
        UnsupportedModelError,
        """
        E0401 graph input 'x' is not a tensor
          --> <ModelProto>
          expected: a tensor of known element type, or a sequence of them
          got: map
    """,
    )


def test_input_without_a_shape() -> None:
    model = good_model()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 the shape of graph input 'x' is missing
          --> <ModelProto> (node x)
          help: give it one: inputs={"x": (1, 3, 224, 224)}
    """,
    )


def test_negative_dimension() -> None:
    model = good_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = -1
    assert_refused(
        model,
        InvalidModelError,
        """
        E0400 dimension 0 of graph input 'x' is negative
          --> <ModelProto> (node x)
          got: -1
          help: give the shape: inputs={"x": (1, 3, 224, 224)}
    """,
    )


def test_shape_for_an_input_that_is_not_there() -> None:
    assert_refused(
        good_model(),
        InvalidInputError,
        """
        E0500 unknown input 'data'
          --> <ModelProto>
          expected: 'x'
    """,
        inputs={"data": (1, 3)},
    )


def test_shape_of_the_wrong_rank() -> None:
    assert_refused(
        good_model(),
        InvalidInputError,
        """
        E0500 the shape given for input 'x' has the wrong rank
          --> <ModelProto> (node x)
          expected: 2 dimensions
          got: (1, 3, 224)
    """,
        inputs={"x": (1, 3, 224)},
    )


def model_with_functions(bodies: dict[str, list[str]]) -> ModelProto:
    """Functions by name, each a chain of calls of the named functions or operators."""
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("own", 1)]
    model = make_model([helper.make_node("F0", ["x"], ["y"], domain="own")])
    model.opset_import.append(opsets[1])
    for name, calls in bodies.items():
        values = ["a", *(f"v{i}" for i in range(len(calls) - 1)), "b"]
        nodes = [
            helper.make_node(c, [s], [d], domain="own" if c in bodies else "")
            for c, (s, d) in zip(calls, itertools.pairwise(values), strict=True)
        ]
        model.functions.append(helper.make_function("own", name, ["a"], ["b"], nodes, opsets))
    return model


def test_functions_that_recurse() -> None:
    error = error_of(
        lambda: from_onnx(model_with_functions({"F0": ["F1"], "F1": ["F0"]})), InvalidModelError
    )
    assert error.what == "the model-local functions cannot be inlined"


def test_functions_that_explode() -> None:
    bodies = {f"F{i}": [f"F{i + 1}"] * 2 for i in range(60)} | {"F60": ["Relu"]}
    assert_refused(
        model_with_functions(bodies),
        InvalidModelError,
        f"""
        E0400 the model-local functions expand to too many nodes
          --> <ModelProto>
          expected: at most 1000000
          got: {2**60}
    """,
    )
