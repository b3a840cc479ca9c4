"""Run models on the toy target: compiled, from an artifact, and from a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import weft

MLP = """
def @main(%x: Tensor[(2, 8), float32], %w: Tensor[(16, 8), float32],
          %v: Tensor[(4, 16), float32]) {
  nn.softmax(nn.dense(nn.relu(nn.dense(%x, %w)), %v))
}
"""
# This process imports weft alone, which finds the back end by the metadata of its package.
LOAD = """
import numpy as np, weft
module = weft.load("net.weft")
with np.load("inputs.npz") as inputs:
    np.save("result.npy", module(*inputs.values()))
"""


def onnx_model() -> bytes:
    """A convolution, a pool and a softmax."""
    rng = np.random.default_rng(0)
    kernel = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3), np.float32), "kernel")
    nodes = [helper.make_node("Conv", ["x", "kernel"], ["c"], pads=[1, 1, 1, 1]),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("GlobalAveragePool", ["r"], ["g"]),
             helper.make_node("Flatten", ["g"], ["f"]),
             helper.make_node("Softmax", ["f"], ["y"])]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))], [kernel])
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9).SerializeToString()


def install(folder: Path) -> None:
    """Write the metadata that ``pip install`` of this package leaves behind."""
    info = folder / "toy_target-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-target\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[weft.plugins]\ntoy = {__package__}\n")


def loaded_elsewhere(folder: Path, inputs: list[np.ndarray]) -> np.ndarray:
    """The result of ``net.weft`` of a folder in a process that has the plug-in alone."""
    install(folder)
    np.savez(folder / "inputs.npz", *inputs)
    path = os.pathsep.join([str(folder), *filter(None, map(os.path.abspath, sys.path))])
    subprocess.run([sys.executable, "-c", LOAD], cwd=folder, check=True,
                   env={**os.environ, "PYTHONPATH": path})
    return np.load(folder / "result.npy")


def compare(name: str, model: object) -> None:
    """Run a model on the toy target, from memory and from an artifact, and on the CPU."""
    toy, cpu = weft.compile(model, target="toy"), weft.compile(model)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(spec.shape, np.float32) for spec in toy.inputs]
    np.testing.assert_allclose(toy(*inputs), cpu(*inputs), rtol=1e-4, atol=1e-5)
    with tempfile.TemporaryDirectory() as folder:
        toy.export(Path(folder) / "net.weft")
        np.testing.assert_array_equal(weft.load(Path(folder) / "net.weft")(*inputs), toy(*inputs))
        elsewhere = loaded_elsewhere(Path(folder), inputs)
    np.testing.assert_array_equal(elsewhere, toy(*inputs))
    print(f"{name}: {len(toy.manifest.steps)} kernels give the results of the CPU")


if __name__ == "__main__":
    compare("perceptron", weft.parse(MLP))
    compare("convolution", onnx_model())
