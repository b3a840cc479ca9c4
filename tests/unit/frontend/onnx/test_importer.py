"""What an imported module looks like: names, types, spans, order, functions of the model."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.unit.frontend.onnx.onnx_cases import assert_agrees, make_model, run_weft
from weft.frontend.onnx import from_onnx
from weft.ir.expr import Call, Tuple
from weft.ir.types import TensorType
from weft.ir.visitor import post_order
from weft.support.errors import OptionError

F32 = TensorProto.FLOAT


def two_outputs() -> Any:
    nodes = [
        helper.make_node("Relu", ["gpu_0/data"], ["mid/1"], name="act"),
        helper.make_node("Exp", ["mid/1"], ["y:0"]),
    ]
    return make_model(nodes, {"gpu_0/data": ((2, 3), F32)}, ["y:0", "mid/1"])


def test_names_of_inputs_and_outputs_are_kept() -> None:
    module = from_onnx(two_outputs())
    assert module.attrs["input_names"] == ("gpu_0/data",)
    assert module.attrs["output_names"] == ("y:0", "mid/1")
    main = module["main"]
    assert [p.name for p in main.params] == ["gpu_0_data"]
    assert isinstance(main.body, Tuple)


def test_every_call_has_the_place_of_its_node(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(two_outputs(), path)
    calls = [n for n in post_order(from_onnx(path)["main"]) if isinstance(n, Call)]
    assert [str(c.span) for c in calls] == [
        f"{path} (node act (Relu))",
        f"{path} (node Exp_1 (Exp))",
    ]


def test_path_bytes_and_proto_give_the_same_graph(tmp_path: Path) -> None:
    model = two_outputs()
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    for form in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()), model):
        module = from_onnx(form)
        assert module["main"].body.checked_type.fields[0] == TensorType.of((2, 3))


def test_initializers_among_the_inputs_are_constants() -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    weight = np.float32([1, 2, 3])
    model = make_model(nodes, {"w": ((3,), F32), "x": ((2, 3), F32)}, ["y"],
                       constants={"w": weight})  # fmt: skip
    module = from_onnx(model)
    assert module.attrs["input_names"] == ("x",)
    np.testing.assert_array_equal(module["main"].body.args[1].data, weight)


@pytest.mark.parametrize(
    ("declared", "override", "expected"),
    [
        (("N", 3), None, ("N", 3)),
        (("batch size", 3), None, ("batch_size", 3)),
        ((None, 3), None, ("x_dim0", 3)),
        (("N", 3), ("1 <= N <= 8", 3), ("N{1..8}", 3)),
        (("N", 3), (None, 3), ("x_dim0", 3)),
        (("N", 3), (4, 3), (4, 3)),
        (("N", 3), ("m", 3), ("m", 3)),
        ((2, 3), (5, 3), (5, 3)),
        ((0, 3), None, (0, 3)),
        ((-1, 3), (2, 3), (2, 3)),
    ],
)
def test_shapes_of_inputs(declared: Any, override: Any, expected: Any) -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": (declared, F32)}, ["y"])
    inputs = None if override is None else {"x": override}
    module = from_onnx(model, inputs=inputs)
    assert module["main"].params[0].checked_type == TensorType.of(expected)
    assert module["main"].body.checked_type == TensorType.of(expected)


def test_nodes_may_come_in_any_order() -> None:
    nodes = [
        helper.make_node("Add", ["b", "a"], ["y"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Relu", ["x"], ["a"]),
    ]
    model = make_model(nodes, {"x": ((2, 3), F32)}, ["y"], output_type=F32)
    x = np.float32([[-1, 0, 1], [2, 3, 4]])
    (result,) = run_weft(model, {"x": x})
    np.testing.assert_allclose(result, np.exp(np.maximum(x, 0)) + np.maximum(x, 0), rtol=1e-6)


def test_functions_of_the_model_are_expanded() -> None:
    body = [
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("Add", ["r", "a"], ["b"]),
    ]
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "Twice", ["a"], ["b"], body, opset)
    node = helper.make_node("Twice", ["x"], ["y"], domain="own")
    model = make_model([node], {"x": ((3,), F32)}, ["y"], output_type=F32)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    (result,) = run_weft(model, {"x": np.float32([-1, 0, 2])})
    assert result.tolist() == [-1, 0, 4]


def test_an_output_may_be_an_input_or_an_initializer() -> None:
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": ((2,), F32)},
                       ["x", "w", "y"], constants={"w": np.float32([7])},
                       output_type=F32)  # fmt: skip
    results = run_weft(model, {"x": np.float32([-1, 1])})
    assert [r.tolist() for r in results] == [[-1, 1], [7], [0, 1]]


def test_outputs_that_nothing_reads_do_not_count() -> None:
    nodes = [
        helper.make_node("MaxPool", ["x"], ["y", "indices"], kernel_shape=[2]),
        helper.make_node("Dropout", ["y"], ["z", "mask"]),
    ]
    module = from_onnx(make_model(nodes, {"x": (("n", 1, 4), F32)}, ["z"]))
    assert module["main"].body.checked_type == TensorType.of(("n", 1, 3))


def test_nan_and_infinity_in_weights() -> None:
    weight = np.float32([np.nan, np.inf, -np.inf, 1])
    model = make_model([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": ((2, 4), F32)}, ["y"],
                       constants={"w": weight})  # fmt: skip
    assert_agrees(model, {"x": np.float32([[1, 2, 0, 3], [-1, -1, 1, 0]])})


@pytest.mark.parametrize("op", ["Relu", "Softmax", "Exp"])
def test_dimensions_of_size_zero(op: str) -> None:
    model = make_model([helper.make_node(op, ["x"], ["y"])], {"x": ((0, 4), F32)}, ["y"])
    (result,) = run_weft(model, {"x": np.zeros((0, 4), np.float32)})
    assert result.shape == (0, 4)


def test_a_long_chain_imports() -> None:
    """Depth costs no recursion, and time in proportion."""
    count = 5000
    names = ["x", *(f"v{i}" for i in range(count - 1)), "y"]
    nodes = [helper.make_node("Relu", [a], [b]) for a, b in itertools.pairwise(names)]
    model = make_model(nodes, {"x": ((2,), F32)}, ["y"], output_type=F32)
    assert sum(isinstance(n, Call) for n in post_order(from_onnx(model)["main"])) == count


def test_weights_are_not_folded_at_import_but_shapes_are() -> None:
    """Folding large constants is a pass's work; the importer needs small ones alone."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"]),
        helper.make_node("Mul", ["s", "s"], ["s2"]),
        helper.make_node("Add", ["t", "s2"], ["y"]),
    ]
    constants = {"w": np.ones((100, 90), np.float32), "s": np.float32([3])}
    body = from_onnx(make_model(nodes, {}, ["y"], constants=constants))["main"].body
    assert body.args[0].op.name == "transpose"
    assert body.args[1].data.tolist() == [9]


def test_onnx_is_imported_with_the_first_model() -> None:
    code = "import sys, weft.frontend.onnx; sys.exit('onnx' in sys.modules)"
    root = Path(__file__).parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0


def test_missing_onnx_package_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.startswith("weft.frontend.onnx.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(OptionError) as caught:
        from_onnx(b"anything")
    assert caught.value.help == "pip install weft[onnx]"


def test_initializer_arrays_are_read_only() -> None:
    weight = numpy_helper.from_array(np.float32([1, 2]), "w")
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": ((2,), F32)}, ["y"],
                       output_type=F32)  # fmt: skip
    model.graph.initializer.append(weight)
    data = from_onnx(model)["main"].body.args[1].data
    with pytest.raises(ValueError, match="read-only"):
        data[0] = 5
