"""How far rounding in every node of a graph can move its results."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.fuzz.onnx_graph import Graph
from tests.fuzz.onnx_peers import ROUNDING, Arrays, is_float, run_node

# Peers compute the weights of their taps from coordinates of 32 bits.
COARSE = {"Resize": 4e-6}


def noise_of(graph: Graph, outputs: Sequence[str], runs: int = 4) -> Arrays | None:
    """How far rounding in every node can move each output: the largest of some random draws.

    Operands and results of nodes that are not exact are moved by their own rounding (operands
    stand for the sums inside a node); what the graph makes of that is what implementations may
    differ by. ``None`` where a draw takes another shape.
    """
    rng = np.random.default_rng(len(graph.steps))
    bounds = [np.zeros(graph.array(o).shape) for o in outputs]
    for _ in range(runs):
        values = {n: graph.array(n) for n in (*graph.inputs, *graph.constants)}
        for step in graph.steps:
            moves = any(n not in graph.exact for n in step.node.output)
            feeds = {n: _moved(values[n], rng) if moves else values[n] for n in step.reads}
            found = run_node(step.node, feeds, graph.opset)
            if found is None:
                return None
            for name, array in zip(step.node.output, found, strict=True):
                values[name] = _moved(array, rng) if moves else array
                if step.node.op_type in COARSE and is_float(array):
                    values[name] = _shaken(values[name], rng)
        for bound, name in zip(bounds, outputs, strict=True):
            if values[name].shape != bound.shape:
                return None
            np.maximum(bound, _distance(values[name], graph.array(name)), out=bound)
    return bounds


def _moved(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    if not is_float(array):
        return array
    with np.errstate(all="ignore"):
        factor = 1 + ROUNDING[array.dtype.name] * rng.uniform(-1, 1, array.shape)
        return (array.astype(np.float64) * factor).astype(array.dtype)


def _shaken(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Moved by a share of the largest element."""
    wide = array.astype(np.float64)
    largest = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    return (wide + COARSE["Resize"] * largest * rng.uniform(-1, 1, wide.shape)).astype(array.dtype)


def _distance(moved: np.ndarray, still: np.ndarray) -> np.ndarray:
    """Infinite where one of the two alone is NaN, or an infinity that the other is not."""
    a, b = moved.astype(np.float64), still.astype(np.float64)
    with np.errstate(all="ignore"):
        distance = np.abs(a - b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))
