"""Random ONNX graphs against onnxruntime and the reference evaluator; every seed is one graph.

``python -m tests.fuzz.random_onnx --seeds A:B`` runs more of them.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.onnx_noise import noise_of
from tests.fuzz.onnx_peers import differing
from tests.fuzz.random_onnx import (
    LEVELS,
    QUIET,
    check_graph,
    described,
    draw_graph,
    outputs_of,
)

SEEDS = 120
PER_TEST = 10
MOST_NODES = 8
# Sizes that data decides are refused where a later node needs them at compile time.
ALLOWED = (*QUIET, "refused")
# Of the graphs of a test, so many agree with a peer: the others are refused, or peers differ.
MIN_SHARE = 0.7


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_random_graphs_agree(first: int) -> None:
    agreed = 0
    for seed in range(first, first + PER_TEST):
        graph = draw_graph(seed, MOST_NODES)
        # Programs of level 0 have more kernels, so a third of the graphs is enough.
        finding = check_graph(graph, LEVELS if seed % 3 == 0 else LEVELS[-1:])
        if finding is not None and finding.kind not in ALLOWED:
            pytest.fail(f"seed {seed}: {finding.text}\n{described(graph, outputs_of(graph))}")
        agreed += finding is None
    assert agreed >= MIN_SHARE * PER_TEST


def test_a_seed_is_one_graph() -> None:
    first, again, other = (described(g, outputs_of(g)) for g in map(draw_graph, (7, 7, 8)))
    assert first == again
    assert first != other


def test_seeds_reach_most_operators() -> None:
    drawn = {s.node.op_type for seed in range(200) for s in draw_graph(seed, MOST_NODES).steps}
    assert len(drawn) > 80, sorted(drawn)


def test_a_wrong_element_is_found() -> None:
    expected = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
    wrong = expected.copy()
    wrong[1, 2] += 1e-4
    assert differing(expected + np.float32(1e-8), expected) == ""
    assert "at (1, 2)" in differing(wrong, expected)
    assert "nan" in differing(np.where(expected > 0.9, np.nan, expected), expected)
    assert differing(expected.astype(np.float64), expected).startswith("float64[3, 4]")


def test_noise_is_small_where_sums_do_not_cancel() -> None:
    for seed in range(12):
        graph = draw_graph(seed, 3)
        outputs = [n for n in outputs_of(graph) if n in graph.exact]
        noise = noise_of(graph, outputs)
        assert noise is None or all(not n.any() for n in noise)
