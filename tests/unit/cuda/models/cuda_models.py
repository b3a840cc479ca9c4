"""The light ONNX models at a reduced size, on an emulated GPU.

``python -m tests.unit.cuda.models.cuda_models [NAME...] [--size 64] [--nvvm]`` compiles each for
the GPU and for the CPU, runs both and prints the largest difference of the results.
``WEFT_TEST_SHARE`` takes a seeded share of them.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

import weft
from tests.models.randomize import LIGHT_MODELS, input_names, light_model_path, randomize_weights
from tests.sampling import sampled
from weft.runtime.device import HOST

FULL = 224
TARGETS = ("cuda -arch=sm_90a", "cuda -arch=sm_90a -codegen=nvvm")


def reduced(name: str, size: int) -> ModelProto:
    """The model with random weights for images of ``size`` by ``size``, a multiple of 32.

    Pooling over the last feature map becomes global, the shapes in reshapes shrink, and the first
    dense layer takes as many inputs as there are.
    """
    model = randomize_weights(onnx.load(light_model_path(name)), seed=4)
    graph = model.graph
    (shape,) = (item.type.tensor_type.shape for item in graph.input
                if item.name == input_names(model)[0])
    for axis in (2, 3):
        shape.dim[axis].dim_value = size
    del graph.value_info[:]
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    _pool_globally(model)
    _shrink_reshapes(model, size)
    return model


def _pool_globally(model: ModelProto) -> None:
    for node in model.graph.node:
        window = next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [])
        if node.op_type == "AveragePool" and window == [7, 7]:
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]


def _shrink_reshapes(model: ModelProto, size: int) -> None:
    stored = {item.name: item for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type != "Reshape":
            continue
        target = stored[node.input[1]]
        dims = numpy_helper.to_array(target).copy()
        if len(dims) == 2 and dims[1] > 0:
            _shrink_dense(model, node.output[0], int(dims[1]), size)
            dims[1] = -1
        elif len(dims) > 3:
            dims[-2:] = dims[-2:] * size // FULL
        target.CopyFrom(numpy_helper.from_array(dims, target.name))


def _shrink_dense(model: ModelProto, flat: str, inputs: int, size: int) -> None:
    """Keep the first columns of the weight that multiplies ``flat``, for 1 pixel of its channels.

    The models end in feature maps of 6 or 7 pixels a side, or of one if a pool is global.
    """
    stored = {item.name: item for item in model.graph.initializer}
    side = next((n for n in (7, 6) if inputs % (n * n) == 0 and inputs > 4096), 1)
    left = max(size // 32 - (side == 6), 1)
    kept = inputs // (side * side) * left * left if side > 1 else inputs
    for node in model.graph.node:
        if node.op_type in {"Gemm", "MatMul"} and node.input[0] == flat:
            weight = stored.get(node.input[1])
            if weight is None:  # reshaped from one that fits
                continue
            values = numpy_helper.to_array(weight)
            axis = values.shape.index(inputs)
            cut = np.take(values, range(kept), axis)
            weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(cut), weight.name))


def difference(name: str, size: int, target: str = TARGETS[0]) -> float:
    """The largest difference from the CPU's result, relative to the largest element.

    Raises AssertionError if a kernel is not on the device.
    """
    model = reduced(name, size)
    image = np.random.default_rng(5).uniform(-1, 1, (1, 3, size, size)).astype(np.float32)
    expected = weft.compile(model)(image)
    with weft.config(cuda="emulate"):
        compiled = weft.compile(model, target=target)
        found = compiled(image)
    assert all(step.device != HOST for step in compiled.manifest.steps)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def main() -> None:
    """Run the models that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=sampled("cuda models", LIGHT_MODELS, share=1))
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--nvvm", action="store_true")
    options = parser.parse_args()
    failed = False
    for name in options.names:
        start = time.perf_counter()
        try:
            error = difference(name, options.size, TARGETS[options.nvvm])
        except Exception as problem:  # noqa: BLE001 - the report of a sweep
            print(f"{name}: {type(problem).__name__}: {' '.join(str(problem).split())[:400]}",
                  flush=True)
            failed = True
            continue
        failed |= not error < 1e-4
        print(f"{name}: differs by {error:.1e}, {time.perf_counter() - start:.1f} s", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
