"""QuantizeLinear and DequantizeLinear around operators: integers give what real numbers would.

onnxruntime runs the models node by node. One operator differs by one step of its result at most,
where a sum lies between two; a chain passes such a step on.
"""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

import weft
from tests.fuzz.onnx_quantised import draw_chain
from tests.onnxruntime_peer import run_onnxruntime

SINGLE, CHAINS, PER_TEST = 60, 20, 10
# Programs of level 0 have more kernels, so a third of the models is enough.
LEVELS = {0: (0, 3), 1: (3,), 2: (3,)}


def steps_apart(model: ModelProto, seed: int, level: int) -> np.ndarray:
    """Distances to onnxruntime's result in steps of the last QuantizeLinear."""
    rng = np.random.default_rng(seed)
    feeds = {
        v.name: rng.normal(0, 2, [d.dim_value for d in v.type.tensor_type.shape.dim])
        .astype(np.float32) for v in model.graph.input
    }
    (expected,) = run_onnxruntime(model, feeds, optimized=False)
    actual = weft.compile(model, opt_level=level)(*feeds.values())
    assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)
    scales = {t.name: t for t in model.graph.initializer}
    step = np.frombuffer(scales[model.graph.node[-1].input[1]].raw_data, np.float32)[0]
    return np.abs(actual - expected) / step


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("first", range(0, SINGLE, PER_TEST))
def test_single_operators(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        for level in LEVELS[seed % 3]:
            apart = steps_apart(draw_chain(seed, 1), seed, level)
            assert apart.max(initial=0) < 1.01, (seed, level)
            assert (apart > 0.5).mean() < 0.1 or apart.size < 30, (seed, level)


@pytest.mark.sample(0.2, 1)
@pytest.mark.parametrize("first", range(0, CHAINS, PER_TEST))
def test_chains(first: int) -> None:
    for seed in range(first, first + PER_TEST):
        apart = steps_apart(draw_chain(1000 + seed, 4), seed, 3)
        assert apart.max(initial=0) < 8, seed
        assert (apart > 2.5).mean() < 0.1, seed
