"""A target in one file: its object code is the text of loop programs, which weft's evaluator runs.

    python examples/toy_target.py

docs/tutorials/add_target.md explains the parts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.codegen import Backend, TextStage, register_backend
from weft.runtime.arena import array_at
from weft.runtime.device import HOST, Device
from weft.runtime.library import HostLibrary, register_loader
from weft.support.errors import TargetError
from weft.support.log import Level
from weft.target import Target, register_target_kind
from weft.tir import Buffer, PrimFunc
from weft.tir.eval import evaluator_of
from weft.tir.parser import parse_func
from weft.tir.transform.simplify import simplify


@register_target_kind
@dataclass(frozen=True, slots=True)
class ToyTarget(Target):
    """The evaluator of loop programs. Its text form is ``toy``."""

    kind: ClassVar[str] = "toy"

    def __str__(self) -> str:
        return "toy"

    @classmethod
    def parse(cls, text: str) -> ToyTarget:
        """``toy`` takes no options."""
        if text.split() != ["toy"]:
            raise TargetError("unknown option of target 'toy'", got=text, expected="toy")
        return cls()


class ToyLibrary(HostLibrary):
    """Loaded object code: one text per kernel, separated by zero bytes."""

    def __init__(self, code: bytes | memoryview) -> None:
        functions = map(parse_func, bytes(code).decode().split("\0"))
        self._functions = {func.name: func for func in functions}

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0
               ) -> Callable[..., None]:
        """A launch gets the addresses of its arguments; the evaluator takes arrays."""
        func = self._functions[symbol]
        run = evaluator_of(func)
        return lambda *addresses: run(*map(argument, addresses, func.params))


def argument(address: int, buffer: Buffer) -> np.ndarray:
    """The array that a kernel reads or writes through one of its parameters."""
    return array_at(address, buffer.static_shape, buffer.dtype.numpy)


class ToyBackend(Backend[ToyTarget]):
    """One tir pass: loops are neither vectorized nor unrolled, and scratch is not planned."""

    kind: ClassVar[str] = "toy"
    tir_passes = (simplify,)

    def build_kernel(self, func: PrimFunc, target: ToyTarget) -> bytes:
        """The text of the loop program is the object code."""
        return str(func).encode()

    def link(self, objects: Sequence[bytes], target: ToyTarget) -> bytes:
        """The code of an artifact."""
        return b"\0".join(objects)

    def load(self, objects: Sequence[bytes], target: ToyTarget) -> ToyLibrary:
        """The code of a program in this process."""
        return ToyLibrary(self.link(objects, target))

    @property
    def text_stages(self) -> dict[str, TextStage[ToyTarget]]:
        """What ``module.as_text("toy")`` prints."""
        return {"toy": TextStage("object code", "toy", "#", Level.LLVM, lambda func, _: str(func))}


register_backend(ToyBackend())
register_loader("toy", ToyLibrary)


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


MLP = """
def @main(%x: Tensor[(2, 8), float32], %w: Tensor[(16, 8), float32],
          %v: Tensor[(4, 16), float32]) {
  nn.softmax(nn.dense(nn.relu(nn.dense(%x, %w)), %v))
}
"""


def compare(name: str, model: object) -> None:
    """Run a model on the toy target, from memory and from an artifact, and on the CPU."""
    toy, cpu = weft.compile(model, target="toy"), weft.compile(model)
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(spec.shape, np.float32) for spec in toy.inputs]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.weft"
        toy.export(path)
        loaded = weft.load(path)
    np.testing.assert_allclose(toy(*inputs), cpu(*inputs), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(loaded(*inputs), toy(*inputs))
    print(f"{name}: {len(toy.manifest.steps)} kernels give the results of the CPU")


if __name__ == "__main__":
    compare("perceptron", weft.parse(MLP))
    compare("convolution", onnx_model())
