"""Loops and data-dependent sizes at many sizes: nothing is compiled, and memory does not grow.

``test_sizes_of_calls`` has the same test of a block of a transformer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import weft
from tests.unit.compiler.test_sizes_of_calls import resident_bytes
from tests.unit.frontend.onnx.test_onnx_data_sizes import CONSTANTS, DETECTOR, HEAD
from tests.unit.frontend.onnx.test_onnx_symbolic_loops import FEATURES, recurrent

Inputs: TypeAlias = "dict[str, np.ndarray]"


def lstm(batch: int, length: int) -> Inputs:
    rng = np.random.default_rng(batch * 1000 + length)
    return {"x": rng.standard_normal((length, batch, FEATURES)).astype(np.float32)}


def boxes(batch: int, count: int) -> Inputs:
    rng = np.random.default_rng(batch * 1000 + count)
    corner = rng.random((batch, count, 2)) * 10
    both = np.concatenate([corner, corner + rng.random(corner.shape) * 4], -1)
    return {"boxes": both.astype(np.float32),
            "scores": rng.random((batch, 2, count)).astype(np.float32)}


def detector() -> onnx.ModelProto:
    graph = onnx.parser.parse_model(HEAD + DETECTOR)
    for name in ("one", "columns"):
        graph.graph.initializer.append(numpy_helper.from_array(np.array(CONSTANTS[name]), name))
    return graph


def check(model: weft.Executable, inputs: Callable[[int, int], Inputs],
          pairs: list[tuple[int, int]]) -> None:
    """Run all pairs of sizes; some of them again, where the results must be the same bits."""
    assert model.general is not None, model.reason
    largest = inputs(max(b for b, _ in pairs), max(n for _, n in pairs))
    model.run(None, largest)
    some = pairs[::max(1, len(pairs) // 10)]
    first = {pair: model.run(None, inputs(*pair)) for pair in some}
    # Fills the table of calls that are kept ready, and the allocator's memory for results.
    for pair in pairs[:300]:
        model.run(None, inputs(*pair))
    arena, resident = model.general.arena_nbytes, resident_bytes()
    for pair in pairs:
        results = model.run(None, inputs(*pair))
        for got, wanted in zip(results, first.get(pair, results), strict=True):
            np.testing.assert_array_equal(got, wanted)
    assert model.sizes == ()  # no program was compiled for a size
    assert model.general.arena_nbytes == arena
    assert resident_bytes() - resident < 8 << 20


MODELS = {"lstm": (lambda: recurrent("LSTM", "forward"), lstm), "detector": (detector, boxes)}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("count", [80, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_sizes(name: str, count: int) -> None:
    make, inputs = MODELS[name]
    pairs = [(1 + k % 25, 1 + k // 25) for k in range(count)]
    model = weft.compile(make(), threads=1)
    check(model, inputs, pairs)
