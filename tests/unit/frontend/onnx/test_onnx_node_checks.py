"""A table accepts most nodes, without the package ``onnx``, which judges the others."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, checker, defs, helper
from onnx.numpy_helper import from_array

from tools import onnx_schemas
from weft.frontend.onnx import node_checks, schemas
from weft.frontend.onnx.node_checks import Schemas, newest_opset, node_checker
from weft.support.errors import InvalidModelError

OPSETS = {"": 17, "com.microsoft": 1}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> list[str]:
    """The operators that ``onnx`` was asked about, by a program that did not import it itself."""
    found: list[str] = []
    check = node_checks._check

    def noted(node: NodeProto, *rest: object) -> None:
        found.append(node.op_type)
        check(node, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(node_checks, "_check", noted)
    monkeypatch.setattr(node_checks, "SCHEMAS", Schemas(is_imported_here=True))
    return found


def check(*nodes: NodeProto) -> None:
    checked = node_checker(ModelProto(ir_version=9), OPSETS)
    for node in nodes:
        checked(node, "here")


def constant(values: list[float], **changes: object) -> NodeProto:
    node = helper.make_node("Constant", [], ["c"], value=from_array(np.float32(values), "named"))
    for name, value in changes.items():
        if isinstance(value, list):
            getattr(node.attribute[0].t, name).extend(value)
        else:
            setattr(node.attribute[0].t, name, value)
    return node


def too_few_values() -> NodeProto:
    node = constant([1.0, 2.0], float_data=[1.0])
    node.attribute[0].t.ClearField("raw_data")
    return node


def two_values() -> NodeProto:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    node.attribute[0].s = b""
    return node


def test_the_table_accepts_nodes_without_onnx(asked: list[str]) -> None:
    branch = helper.make_attribute("then_branch", GraphProto(name="then"))
    other = helper.make_attribute("else_branch", GraphProto(name="else"))
    conditional = helper.make_node("If", ["c"], ["y"])
    conditional.attribute.extend([branch, other])
    traced = helper.make_node("Relu", ["x"], ["y"])
    traced.metadata_props.add(key="namespace", value="model/relu")
    check(helper.make_node("Softmax", ["x"], ["y"], axis=1), constant([1.0, 2.0]), conditional,
          helper.make_node("BatchNormalization", list("xsbmv"), ["y"], epsilon=1e-3), traced,
          helper.make_node("Clip", ["x", "", "m"], ["y"]),
          helper.make_node("Concat", list("abcdefgh"), ["y"], axis=0), constant([]),
          helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft", any=[1.0]))
    assert not asked


@pytest.mark.parametrize("node", [
    helper.make_node("Softmax", ["x"], ["y"], axis=1.0),
    helper.make_node("Softmax", ["x", "x"], ["y"], axis=1),
    helper.make_node("Softmax", [""], ["y"], axis=1),
    helper.make_node("Softmax", ["x"], ["y"], axis=[1]),
    helper.make_node("Softmax", ["x"], ["y"], axes=1),
    helper.make_node("Concat", ["x"], ["y"]),
    helper.make_node("BatchNormalization", list("xsbmv"), ["y", "m"]),
    helper.make_node("Upsample", ["x", "s"], ["y"]),
    helper.make_node("Gelu", ["x"], ["y"]),
    two_values(),
    constant([1.0], float_data=[1.0]),
    constant([1.0], raw_data=b"123"),
    too_few_values(),
], ids=["kind", "count", "absent", "list", "name", "required", "outputs", "deprecated", "opset",
        "two values", "two fields", "short", "too few"])
def test_a_node_with_an_error_is_never_accepted(asked: list[str], node: NodeProto) -> None:
    for number in (1, 2):
        with pytest.raises(InvalidModelError, match="violates its ONNX schema"):
            check(node)
        assert len(asked) == number


def test_a_user_of_onnx_may_have_changed_its_schemas(
        asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    monkeypatch.setattr(node_checks, "SCHEMAS", Schemas())
    check(node, node)
    assert asked == ["Softmax"] * 2


def test_onnx_is_asked_for_opsets_that_the_table_does_not_have(
        monkeypatch: pytest.MonkeyPatch) -> None:
    newest = newest_opset(17)
    monkeypatch.setattr(schemas, "newest_known", lambda: newest - 1)
    monkeypatch.setattr(node_checks, "newest_known", lambda: newest - 1)
    assert newest_opset(newest - 1) == newest - 1
    assert newest_opset(newest) == defs.onnx_opset_version()
    assert not schemas.accepts(helper.make_node("Relu", ["x"], ["y"]), {"": newest + 1})


def test_the_table_is_that_of_the_installed_release() -> None:
    found = onnx_schemas.table()
    if found["newest"] == schemas._table()["newest"]:
        assert schemas.FILE.read_text(encoding="ascii") == onnx_schemas.text()
    for name, rows in found["operators"].items():  # of a newer or older release
        known = schemas._table()["operators"].get(name, rows)
        assert all(ours == theirs for ours, theirs in zip(known, rows, strict=False)), name


def nodes(schema: defs.OpSchema) -> Iterator[NodeProto]:
    """Nodes of an operator, some of which are correct."""
    values = {"INT": 1, "FLOAT": 1.0, "STRING": "s", "INTS": [1], "FLOATS": [1.0],
              "STRINGS": ["s"], "TENSOR": from_array(np.float32([1])),
              "GRAPH": GraphProto(name="g")}
    attributes = {name: values.get(attribute.type.name) for name, attribute
                  in schema.attributes.items() if attribute.required}

    def node(inputs: int, outputs: int, **further: object) -> NodeProto:
        given = {n: v for n, v in (attributes | further).items() if v is not None}
        return helper.make_node(schema.name, ["x"] * inputs, ["y"] * outputs,
                                domain=schema.domain, **given)

    for inputs in range(min(len(schema.inputs), 4) + 2):
        yield node(inputs, schema.min_output)
    for outputs in range(min(len(schema.outputs), 4) + 2):
        yield node(schema.min_input, outputs)
    for name, attribute in schema.attributes.items():
        for value in (values.get(attribute.type.name), 1, "s"):
            yield node(schema.min_input, schema.min_output, **{name: value})
    absent = node(schema.min_input, schema.min_output)
    for number in range(schema.min_input):
        absent.input[number] = ""
        yield absent


def test_onnx_accepts_what_the_table_accepts() -> None:
    accepted = total = 0
    for schema in defs.get_all_schemas_with_history():
        if schema.domain not in onnx_schemas.DOMAINS:
            continue
        context = checker.C.CheckerContext()
        context.ir_version = 9
        context.opset_imports = {schema.domain: schema.since_version}
        for node in nodes(schema):
            is_accepted = schemas.accepts(node, {schema.domain: schema.since_version})
            try:
                checker.check_node(node, context)
            except checker.ValidationError:
                assert not is_accepted, node
            else:
                total += 1
                accepted += is_accepted
    assert accepted > 0.95 * total


@pytest.mark.parametrize("first", ["onnx", "weft.frontend.onnx.protos"])
def test_the_messages_are_those_of_onnx(first: str) -> None:
    """In either order of import; and those of weft do not need the package."""
    code = f"""
import sys, {first}
assert ("onnx" in sys.modules) is ({first!r} == "onnx")
import onnx, weft.frontend.onnx.protos as protos
for name in protos._NAMES:
    assert getattr(onnx, name) is getattr(protos, name), name
assert onnx.onnx_ml_pb2.ModelProto is protos.ModelProto
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
