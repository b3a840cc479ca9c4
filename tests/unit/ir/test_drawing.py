"""Drawings of programs: what is drawn, Graphviz's text, and SVG."""

from __future__ import annotations

import re
import shutil
import subprocess
from xml.etree import ElementTree as ET

import pytest

import weft
from weft.compiler.report.graph_svg import graph_svg
from weft.ir.drawing import as_dot, drawn_nodes

PROGRAM = """
def @helper(%y: Tensor[(2,), float32]) -> Tensor[(2,), float32] { tanh(%y) }
def @main(%c: bool, %x: Tensor[(2,), float32]) {
  let %a = add(%x, const([1, 2], (2,), float32));
  let %b = if (%c) { @helper(%a) } else { clip(%a, a_min=0, a_max=6) };
  (%b, %a)
}"""


def nodes_of(text=PROGRAM):
    return drawn_nodes(weft.parse(text)["main"])


def test_bindings_are_edges_and_constants_are_mentioned():
    nodes = nodes_of()
    labels = [node.lines[0] for node in nodes]
    assert labels == ["%c", "%x", "add", "@helper", "clip", "if", "tuple", "result"]
    assert nodes[2].lines[1:] == ("1 constant", "Tensor[(2,), float32]")
    used = {label: {labels[n] for n in node.inputs}
            for label, node in zip(labels, nodes, strict=True)}
    assert used["if"] == {"%c", "@helper", "clip"}
    assert used["tuple"] == {"if", "add"}
    assert used["result"] == {"tuple"}
    assert nodes[4].lines[1] == "a_min=0.0, a_max=6.0"
    assert all(n < number for number, node in enumerate(nodes) for n in node.inputs)


def test_loops_are_drawn_once():
    nodes = nodes_of("""
        def @main(%n: int32) {
          let %loop = fn (%i: int32) -> int32 { if (%i < %n) { %loop(%i + 1) } else { %i } };
          %loop(0)
        }""")
    labels = [node.lines[0] for node in nodes]
    assert labels.count("fn") == 1
    assert labels.count("%loop") == 2  # the call inside and the one outside


def test_dot_has_a_cluster_for_each_function():
    mod = weft.parse(PROGRAM)
    text = as_dot(mod)
    assert text.count("subgraph cluster_") == 2
    assert 'label="add\\n1 constant\\nTensor[(2,), float32]"' in text
    assert as_dot(mod) == text
    assert len(re.findall(r"n1_\d+ -> n1_\d+;", text)) == sum(len(n.inputs) for n in nodes_of())


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_it():
    done = subprocess.run(["dot", "-Tsvg"], input=as_dot(weft.parse(PROGRAM)), text=True,
                          capture_output=True, check=True)
    assert "<svg" in done.stdout


def test_svg_draws_every_node_below_what_it_uses():
    nodes = nodes_of()
    svg = ET.fromstring(graph_svg(nodes))
    boxes = [g for g in svg.iter("g") if g.get("class").startswith("node")]
    assert len(boxes) == len(nodes)
    rects = [box.find("rect") for box in boxes]
    tops = [float(rect.get("y")) for rect in rects]
    bottoms = [top + float(rect.get("height")) for top, rect in zip(tops, rects, strict=True)]
    for number, node in enumerate(nodes):
        assert all(bottoms[used] < tops[number] for used in node.inputs)
    for one in range(len(nodes)):  # boxes of a layer stand side by side
        for other in range(one):
            if tops[one] == tops[other]:
                left, right = sorted((rects[one], rects[other]), key=lambda r: float(r.get("x")))
                assert float(left.get("x")) + float(left.get("width")) <= float(right.get("x"))
    assert len(list(svg.iter("path"))) == sum(len(node.inputs) for node in nodes)


def test_a_long_chain_is_drawn():
    text = "".join(f"let %v{n} = exp(%v{n - 1}); " for n in range(1, 3000))
    nodes = nodes_of(f"def @main(%v0: Tensor[(2,), float32]) {{ {text} %v2999 }}")
    assert len(nodes) == 3001
    assert graph_svg(nodes).count("<rect") == 3001


@pytest.mark.usefixtures("own_cache")
def test_compiled_modules_are_drawn():
    module = weft.compile(weft.parse("def @main(%x: Tensor[(2,), float32]) { exp(tanh(%x)) }"))
    assert "tanh + exp" in module.as_svg()
    assert "tanh + exp" in module.as_dot("lowered")
    with pytest.raises(weft.WeftError, match="unknown phase"):
        module.as_dot("llvm")
