"""Random ONNX graphs in weft, onnxruntime and the reference evaluator.

``python -m tests.fuzz.random_onnx --seeds A:B`` runs the graphs of those seeds and prints those on
which weft alone differs, with a minimal description. One number is one graph, whatever runs it.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, helper

from tests.fuzz.onnx_graph import Graph
from tests.fuzz.onnx_layers import DRAWS as LAYERS
from tests.fuzz.onnx_nodes import DRAWS as NODES
from tests.fuzz.onnx_noise import noise_of
from tests.fuzz.onnx_peers import (
    Arrays,
    Outcome,
    all_differing,
    outcome_of_onnxruntime,
    run_reference,
    run_weft,
)

_DRAWS = list((NODES | LAYERS).items())
_WEIGHTS = np.array([w for _, w in _DRAWS]) / sum(w for _, w in _DRAWS)
LEVELS = (0, 3)
# Findings in which the peers disagree, or there is one or none, or both refuse the model.
QUIET = ("alone", "all differ", "refused by both", "unchecked")


@dataclass(frozen=True)
class Finding:
    """``kind`` is wrong, alone, refused, unchecked or failed; ``alone`` where there is one peer."""

    kind: str
    text: str


def draw_graph(seed: int, most: int = 15) -> Graph:
    """A graph of 1 to ``most`` nodes."""
    graph = Graph(seed)
    wanted = graph.int(1, most) if graph.chance(0.6) else graph.int(1, min(most, 4))
    for _ in range(4 * wanted):
        if len(graph.steps) >= wanted:
            break
        draw, _weight = _DRAWS[int(graph.rng.choice(len(_DRAWS), p=_WEIGHTS))]
        try:
            draw(graph)
        except LookupError:  # no operand fits, or the opset lacks the operator
            continue
    return graph


def outputs_of(graph: Graph) -> list[str]:
    """Every result that no node reads, and some of the others."""
    read = {n for s in graph.steps for n in s.reads}
    results = [n for s in graph.steps for n in s.node.output]
    return [n for n in results if n not in read or graph.chance(0.15)]


def check_graph(graph: Graph, levels: tuple[int, ...] = LEVELS) -> Finding | None:
    """What is wrong with weft on this graph; ``None`` where it agrees with a peer."""
    outputs = outputs_of(graph)
    return _check(graph, outputs, levels) if outputs else Finding("unchecked", "no outputs")


def _check(graph: Graph, outputs: list[str], levels: tuple[int, ...]) -> Finding | None:
    model = graph.model(outputs)
    feeds = {v.name: graph.array(v.name) for v in model.graph.input}
    results: list[Outcome] = []
    for level in levels:
        try:
            results.append(run_weft(model, feeds, level))
        except Exception as error:  # noqa: BLE001 - all of these are findings
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} at level {level}: {error}"
            return Finding("failed", f"{what} ({where.filename}:{where.lineno})")
    peer = outcome_of_onnxruntime(model, feeds)
    if any(r.arrays is None for r in results):
        first = next(r.error for r in results if r.arrays is None)
        kind = "refused" if peer.arrays is not None else "refused by both"
        return Finding(kind, first)
    return _compared(graph, outputs, [r.arrays or [] for r in results], peer, model)


def _compared(
    graph: Graph, outputs: list[str], results: list[Arrays], peer: Outcome, model: ModelProto
) -> Finding | None:
    reference = run_reference(model, {v.name: graph.array(v.name) for v in model.graph.input})
    peers = [p.arrays for p in (reference, peer) if p.arrays is not None]
    if not peers:
        return Finding("unchecked", "no peer runs the model")
    if not any(all_differing(arrays, peers) for arrays in results):
        return None
    noise = noise_of(graph, outputs)
    if noise is None:
        return Finding("unchecked", "rounding decides about shapes")
    for number, arrays in enumerate(results):
        text = all_differing(arrays, peers, noise)
        if text:
            agree = len(peers) == 2 and not all_differing(peers[0], peers[1:], noise)
            kind = "wrong" if agree else "alone" if len(peers) == 1 else "all differ"
            return Finding(kind, f"run {number}: {text}")
    return None


def minimal(graph: Graph, finding: Finding) -> tuple[list[str], Finding]:
    """The first result that is wrong when it is the only output."""
    for step in graph.steps:
        outputs = list(step.node.output)
        found = _check(graph, outputs, LEVELS)
        if found is not None and found.kind not in QUIET:
            return outputs, found
    return outputs_of(graph), finding


def described(graph: Graph, outputs: list[str]) -> str:
    """The nodes that lead to ``outputs`` with their attributes and shapes."""
    model = graph.model(outputs)
    lines = [f"opset {graph.opset}"]
    for node in model.graph.node:
        attrs = {a.name: _value(helper.get_attribute_value(a)) for a in node.attribute}
        operands = ", ".join(_operand(graph, n) for n in node.input)
        lines.append(f"  {', '.join(node.output)} = {node.op_type}({operands}) {attrs or ''}")
    return "\n".join(lines)


def _value(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) < 80 else text[:80] + "..."


def _operand(graph: Graph, name: str) -> str:
    if not name:
        return "-"
    array = graph.array(name)
    text = f"{name}: {array.dtype}{list(array.shape)}"
    return f"{text} = {array.tolist()}" if array.size < 9 and name[0] != "v" else text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:200", help="A:B, the first and the one behind")
    parser.add_argument("--nodes", type=int, default=15, help="the most nodes of a graph")
    parser.add_argument("--all", action="store_true", help="show findings with one peer, too")
    parser.add_argument("--levels", default="0,3", help="the opt levels that are compared")
    options = parser.parse_args()
    levels = tuple(int(v) for v in options.levels.split(","))
    first, last = (int(v) for v in options.seeds.split(":"))
    counts: Counter[str] = Counter()
    for seed in range(first, last):
        graph = draw_graph(seed, options.nodes)
        finding = check_graph(graph, levels)
        counts[finding.kind if finding else "agree"] += 1
        counts.update(f"node {s.node.op_type}" for s in graph.steps)
        if finding is None or (finding.kind in QUIET and not options.all):
            continue
        outputs, found = minimal(graph, finding)
        print(f"--- seed {seed}: {found.kind}: {found.text}\n{described(graph, outputs)}",
              flush=True)
    nodes = {k.removeprefix("node "): v for k, v in counts.items() if k.startswith("node ")}
    print({k: v for k, v in counts.items() if not k.startswith("node ")})
    print(dict(sorted(nodes.items())))
    return 1 if counts["wrong"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
