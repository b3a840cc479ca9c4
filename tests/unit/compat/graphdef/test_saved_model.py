"""SavedModels: signatures, variables from checkpoints, functions that assign, damage."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.compat.graphdef.helpers import const
from tests.unit.compat.graphdef.saved_models import save, write_checkpoint
from weft.compat.graphdef import (
    ArgDef,
    ForeignType,
    FunctionDef,
    FunctionRef,
    GraphDef,
    GraphDefModel,
    Library,
    NodeDef,
    ShapeAttr,
)
from weft.compat.graphdef.checkpoint import Checkpoint
from weft.compat.graphdef.crc32c import crc32c
from weft.ir.dtype import DType
from weft.support.errors import InvalidModelError, OptionError, UnsupportedModelError, WeftError

F32, HANDLE, STRING = DType.of("float32"), ForeignType("DT_RESOURCE"), ForeignType("DT_STRING")
W = np.arange(8, dtype=np.float32).reshape(4, 2)
TOTAL = np.float32([10, 20])
VALUES = {"layers/0/w": W, "layers/0/total": TOTAL}


def variable(name: str, value: np.ndarray) -> NodeDef:
    return NodeDef(name, "VarHandleOp", attrs={"dtype": F32, "shape": ShapeAttr(value.shape),
                                               "shared_name": name})


def call(name: str, function: str, *inputs: str) -> NodeDef:
    return NodeDef(name, "StatefulPartitionedCall", inputs,
                   attrs={"f": FunctionRef(function), "Tin": (F32,), "Tout": (F32,)})


def placeholder(name: str, *shape: int | None) -> NodeDef:
    return NodeDef(name, "Placeholder", attrs={"dtype": F32, "shape": ShapeAttr(shape)})


def read(name: str, handle: str) -> NodeDef:
    return NodeDef(name, "ReadVariableOp", (handle,), attrs={"dtype": F32})


# x w + total, and total += x w, in a function that a wrapper calls.
INNER = FunctionDef(
    "inner", (ArgDef("x", F32), ArgDef("w", HANDLE), ArgDef("total", HANDLE)),
    (ArgDef("y", F32),),
    (read("read_w", "w"), read("read_total", "total"),
     NodeDef("product", "MatMul", ("x", "read_w:value:0"), attrs={"T": F32}),
     const("axis", np.int32([0])),
     NodeDef("row", "Sum", ("product:product:0", "axis:output:0"), attrs={"T": F32}),
     NodeDef("sum", "AddV2", ("product:product:0", "read_total:value:0"), attrs={"T": F32}),
     NodeDef("more", "AssignAddVariableOp", ("total", "row:output:0", "^read_total"),
             attrs={"dtype": F32}),
     NodeDef("out", "Identity", ("sum:z:0", "^more"), attrs={"T": F32})),
    {"y": "out:output:0"}, {"more": "more", "read_w": "read_w"}, is_stateful=True)
WRAPPER = FunctionDef(
    "wrapper", INNER.inputs, INNER.outputs, (call("inner", "inner", "x", "w", "total"),),
    {"y": "inner:output:0"}, {"inner": "inner"})
RESTORE = FunctionDef(
    "restore", (ArgDef("prefix", STRING), ArgDef("w", HANDLE), ArgDef("total", HANDLE)),
    (ArgDef("done", STRING),),
    (NodeDef("tensor_names", "Const", attrs={"dtype": STRING}),
     NodeDef("slices", "Const", attrs={"dtype": STRING}),
     NodeDef("restored", "RestoreV2", ("prefix", "tensor_names:output:0", "slices:output:0")),
     NodeDef("first", "Identity", ("restored:tensors:0",), attrs={"T": F32}),
     NodeDef("give_w", "AssignVariableOp", ("w", "first:output:0"), attrs={"dtype": F32}),
     NodeDef("give_total", "AssignVariableOp", ("total", "restored:tensors:1"),
             attrs={"dtype": F32})),
    {"done": "prefix"}, {"a": "give_w", "b": "give_total"})
LIBRARY = Library({f.name: f for f in (INNER, WRAPPER, RESTORE)})
NODES = (variable("dense/w", W), variable("dense/total", TOTAL),
         placeholder("serving_default_x", None, 4), placeholder("filename"),
         call("StatefulPartitionedCall", "wrapper", "serving_default_x", "dense/w", "dense/total"),
         call("restore_all", "restore", "filename", "dense/w", "dense/total"),
         read("plain_read", "dense/w"), placeholder("other_x", 4),
         NodeDef("plain", "Mul", ("plain_read", "other_x"), attrs={"T": F32}))
SIGNATURES = {
    "serving_default": ({"x": "serving_default_x:0"}, {"y": "StatefulPartitionedCall:0"}),
    "plain": ({"v": "other_x:0"}, {"plain": "plain:0"}),
    "__saved_model_init_op": ({}, {"__saved_model_init_op": "NoOp"}),
}
X = np.float32([[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 2]])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save(tmp_path / "net", GraphDef(NODES, library=LIBRARY), SIGNATURES, VALUES)


def test_a_signature_has_its_names_and_the_state_of_its_functions(folder: Path) -> None:
    compiled = weft.compile(folder)
    assert [p.name for p in (*compiled.inputs, *compiled.outputs)] == ["x", "y"]
    total = TOTAL
    for rows in (X, X[:1]):
        np.testing.assert_array_equal(compiled(rows), rows @ W + total)
        total = total + (rows @ W).sum(0)
    np.testing.assert_array_equal(compiled.state["dense/total"], total)
    again = weft.compile(str(folder / "saved_model.pb"))
    np.testing.assert_array_equal(again(X), X @ W + TOTAL)


def test_another_signature_is_a_model_of_its_own(folder: Path) -> None:
    model = GraphDefModel.of_signature(folder, "plain")
    compiled = weft.compile(model, inputs={"v": (4, 1)})
    assert [p.name for p in (*compiled.inputs, *compiled.outputs)] == ["v", "plain"]
    np.testing.assert_array_equal(compiled(X[0].reshape(4, 1)), W * X[0].reshape(4, 1))


def test_variables_of_version_1_are_restored_by_nodes_of_the_graph(tmp_path: Path) -> None:
    nodes = (
        NodeDef("v", "VariableV2", attrs={"dtype": F32, "shape": ShapeAttr((2,))}),
        placeholder("x", 2), NodeDef("y", "AddV2", ("x", "v"), attrs={"T": F32}),
        placeholder("save/Const"), NodeDef("save/tensor_names", "Const", attrs={"dtype": STRING}),
        NodeDef("save/slices", "Const", attrs={"dtype": STRING}),
        NodeDef("save/RestoreV2", "RestoreV2", ("save/Const", "save/tensor_names", "save/slices")),
        NodeDef("save/Assign", "Assign", ("v", "save/RestoreV2"), attrs={"T": F32}))
    folder = save(tmp_path / "net", GraphDef(nodes), {"only": ({"x": "x:0"}, {"y": "y:0"})},
                  {"v": TOTAL})
    np.testing.assert_array_equal(weft.compile(folder)(np.float32([1, 2])), [11, 22])


def test_choices_that_the_model_does_not_have_are_refused(folder: Path) -> None:
    with pytest.raises(OptionError, match="no signature 'train'") as caught:
        GraphDefModel.of_signature(folder, "train")
    assert "plain, serving_default" in str(caught.value)
    with pytest.raises(OptionError, match="no graph with these tags"):
        GraphDefModel.of_signature(folder, tags=["gpu"])


def test_a_checkpoint_has_many_keys_in_blocks(tmp_path: Path) -> None:
    tensors = {f"layer/{i}/kernel": np.arange(i, dtype=np.int64) for i in range(40)}
    write_checkpoint(tmp_path / "ckpt", {**tensors, "half": np.float16([1, 2])})
    read_back = Checkpoint(tmp_path / "ckpt")
    for key, value in tensors.items():
        np.testing.assert_array_equal(read_back.tensor(key), value)
    assert read_back.tensor("half").dtype == np.float16
    with pytest.raises(InvalidModelError, match="no tensor 'layer/40/kernel'"):
        read_back.tensor("layer/40/kernel")


def test_checksums_are_those_of_the_standard() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(256)) * 9) == crc32c(b"" + bytes(range(256)) * 9)


@pytest.mark.parametrize(("name", "position", "text"), [
    ("variables.data-00000-of-00001", 3, "another checksum"),
    ("variables.index", 2, "checksum"),
    ("variables.index", -1, "the end of the table"),
])
def test_a_changed_byte_is_found(folder: Path, name: str, position: int, text: str) -> None:
    path = folder / "variables" / name
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    with pytest.raises(InvalidModelError, match="damaged") as caught:
        weft.compile(folder)
    assert text in str(caught.value)


def test_missing_and_cut_files_are_refused(folder: Path) -> None:
    shard = folder / "variables" / "variables.data-00000-of-00001"
    shard.write_bytes(shard.read_bytes()[:5])
    with pytest.raises(InvalidModelError, match="position"):
        weft.compile(folder)
    shutil.rmtree(folder / "variables")
    with pytest.raises(InvalidModelError, match="cannot be read"):
        weft.compile(folder)
    (folder / "saved_model.pb").write_bytes(b"\xff\xff")
    with pytest.raises(InvalidModelError, match="not a SavedModel"):
        weft.compile(folder)


def test_operators_in_functions_are_listed(tmp_path: Path) -> None:
    body = FunctionDef("body", (ArgDef("x", F32), ArgDef("w", HANDLE)), (ArgDef("y", F32),),
                       (NodeDef("odd", "NoSuchOperator", ("x",), attrs={"T": F32}),),
                       {"y": "odd:anything:0"})
    nodes = (placeholder("x", 4), variable("w", W), call("go", "body", "x", "w"))
    folder = save(tmp_path / "net", GraphDef(nodes, library=Library({"body": body})),
                  {"serving_default": ({"x": "x:0"}, {"y": "go:0"})}, {})
    with pytest.raises(UnsupportedModelError, match="1 operator that weft does not") as caught:
        weft.compile(folder)
    assert "NoSuchOperator: 1 node (go/odd)" in str(caught.value)
    assert isinstance(caught.value, WeftError)


@pytest.mark.parametrize(("change", "text"), [
    ({"inputs": (ArgDef("x", number_attr="n"), *INNER.inputs[1:])}, "a value for attribute 'n'"),
    ({"control_returns": {"a": "gone"}}, "waits for nodes that it does not have"),
], ids=["attribute", "node"])
def test_a_function_that_names_what_it_does_not_have_is_refused(
        change: dict[str, Any], text: str, tmp_path: Path) -> None:
    broken = Library({**LIBRARY.functions, "inner": dataclasses.replace(INNER, **change)})
    folder = save(tmp_path / "net", GraphDef(NODES, library=broken), SIGNATURES, VALUES)
    with pytest.raises(InvalidModelError, match=text):
        weft.compile(folder)
