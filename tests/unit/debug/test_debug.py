"""Every tensor beside another evaluation; wrong passes and kernels are found; models shrink."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest

import weft
from tests.unit.cli.commands import run
from tests.unit.compiler.test_partial_runs import two_layers
from weft import ir
from weft.debug import ModelTensors, compare, first_wrong_kernel, first_wrong_pass, shrink
from weft.debug.compare import difference
from weft.ir.expr import Constant
from weft.ir.visitor import children, post_order, rebuild
from weft.support.errors import InvalidInputError, OptionError
from weft.tir.expr import Add, Sub
from weft.tir.visitor import transform_expr, transform_stmt

TEXT = """
def @main(%x: Tensor[(4, 16), float32], %w: Tensor[(8, 16), float32]) {
  let %a = nn.relu(nn.dense(%x, %w));
  let %b = tanh(add(%a, 3f));
  nn.softmax(multiply(%b, %a))
}
"""
RANDOM = np.random.default_rng(5)
INPUTS = {"x": RANDOM.standard_normal((4, 16)).astype(np.float32),
          "w": RANDOM.standard_normal((8, 16)).astype(np.float32)}


@dataclass(frozen=True)
class ThreeIsMinusThree(ir.Pass):
    """A wrong pass: constants of 3 become -3."""

    name: ClassVar[str] = "three_is_minus_three"

    def run_module(self, mod: ir.IRModule, ctx: Any) -> ir.IRModule:
        memo: dict[Any, Any] = {}
        for node in post_order(mod["main"]):
            memo[node] = rebuild(node, [memo[c] for c in children(node)])
            if isinstance(node, Constant) and node.data.shape == () and node.data == 3:
                memo[node] = Constant(np.float32(-3))
        return mod.with_function("main", memo[mod["main"]])


def wrong_sums(func: Any) -> Any:
    """A wrong loop pass: floats are subtracted instead of added."""
    def change(expr: Any) -> Any:
        return Sub(expr.a, expr.b) if type(expr) is Add and expr.dtype.is_float else expr

    return func.replace(body=transform_stmt(
        func.body, fn_expr=lambda whole: transform_expr(whole, change)))


def test_tensors_have_names_in_the_order_of_execution() -> None:
    model = ModelTensors(weft.parse(TEXT), INPUTS)
    assert model.names == ["nn.dense", "a", "add", "b", "multiply", "nn.softmax"]


@pytest.mark.parametrize("against", ["reference", "O0", "llvm -mcpu=x86-64-v2"])
def test_a_right_model_has_no_wrong_tensor(against: str) -> None:
    found = compare(weft.parse(TEXT), INPUTS, against=against)
    assert found.first_wrong is None
    assert found.first_not_finite is None
    assert len(found.rows()) == 6


def test_onnxruntime_is_a_peer() -> None:
    x = RANDOM.standard_normal((4, 64)).astype(np.float32)
    found = compare(two_layers(), [x], against="onnxruntime")
    assert [t.name for t in found.tensors] == ["layer1/out", "layer1/relu", "y"]
    assert found.first_wrong is None
    with pytest.raises(OptionError, match="takes ONNX models only"):
        compare(weft.parse(TEXT), INPUTS, against="onnxruntime")


def test_the_first_wrong_tensor_is_named() -> None:
    model = ModelTensors(weft.parse(TEXT), INPUTS, passes=[
        weft.pass_at(ThreeIsMinusThree(), phase="canonical")])
    got, want = model.values(), model.values("reference")
    wrong = [name for name in model.names
             if difference(name, got[name], want[name]).exceeds(1e-3)]
    assert wrong[0] == "add"


def test_the_wrong_pass_is_found() -> None:
    model = ModelTensors(weft.parse(TEXT), INPUTS, passes=[
        weft.pass_at(ThreeIsMinusThree(), after="fold_constant")])
    found = first_wrong_pass(model)
    assert found is not None
    assert found.name == "three_is_minus_three"
    assert "-3f" in str(found.after)
    assert "-3f" not in str(found.before)


def test_right_passes_are_not_blamed() -> None:
    model = ModelTensors(weft.parse(TEXT), INPUTS)
    assert first_wrong_pass(model) is None
    assert first_wrong_kernel(model) is None


def test_the_wrong_kernel_is_found() -> None:
    model = ModelTensors(weft.parse(TEXT), INPUTS, tir_passes=[
        weft.pass_at(wrong_sums, after="simplify")])
    found = first_wrong_kernel(model)
    assert found is not None
    assert "nn.dense" in found.kernel.text


def test_a_model_shrinks_to_the_operators_that_fail(tmp_path: Path) -> None:
    model = ModelTensors(weft.parse(TEXT), INPUTS)
    found = shrink(model, "nn.softmax", fails=lambda module, _: "tanh" in str(module))
    assert found.operators == 4
    assert "nn.dense" not in str(found.module)
    found.save(tmp_path / "bug")
    done = subprocess.run([sys.executable, "reproduce.py"], cwd=tmp_path / "bug", check=True,
                          capture_output=True, text=True)
    assert "nn.softmax" in done.stdout
    with pytest.raises(OptionError, match="no part of the model"):
        shrink(model, "b")


def test_infinities_and_nans() -> None:
    text = "def @main(%x: Tensor[(3,), float32]) { let %l = log(%x); multiply(%l, 0f) }"
    found = compare(weft.parse(text), [np.array([1, 0, -1], np.float32)])
    assert found.first_wrong is None, "both have them"
    assert found.first_not_finite is not None
    assert (found.first_not_finite.name, found.first_not_finite.not_finite) == ("l", 2)
    apart = difference("t", np.array([np.nan, 1.0]), np.array([1.0, 1.0]))
    assert apart.bad == 1
    assert apart.exceeds(1e9)


def test_inputs_that_do_not_fit() -> None:
    with pytest.raises(InvalidInputError, match="do not fit"):
        ModelTensors(weft.parse(TEXT), {"x": INPUTS["x"]})


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(two_layers(), path)
    code, out, _ = run(["debug", path, "--against", "onnxruntime", "--bisect", "--dump",
                        tmp_path / "v.npz"], capsys)
    assert code == 0
    assert "all 3 tensors are within" in out
    assert "all kernels compute" in out
    assert set(np.load(tmp_path / "v.npz").files) == {"layer1/out", "layer1/relu", "y"}
    code, out, _ = run(["inspect", "--tensors", path], capsys)
    assert "layer1/relu: Tensor[(4, 64), float32]" in out


@pytest.mark.torch
def test_modules_of_torch() -> None:
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).eval()
    x = torch.randn(5, 3)
    model = ModelTensors(net, [x.numpy()], example_inputs=(x,))
    assert {"0", "1", "2"} <= set(model.names) | {"linear", "relu", "linear_1"}
    assert compare(net, [x.numpy()], example_inputs=(x,)).first_wrong is None
