"""Drawings of graphs in Graphviz's DOT language."""

from __future__ import annotations

from weft.compat.graph.structure import GraphStructure


def to_dot(graph: GraphStructure) -> str:
    """One box per node with its name, operator and device; control edges are dashed."""
    lines = ["digraph weft {", "  node [shape=box];"]
    for node in graph.op_nodes:
        device = f"\\n{_text(node.device)}" if node.device else ""
        lines.append(f'  n{node.id} [label="{_text(node.name)}\\n{_text(node.op)}{device}"];')
    for edge in graph.edges:
        if not (edge.src.is_op and edge.dst.is_op):
            continue
        if edge.is_control:
            style = " [style=dashed]"
        else:
            style = f' [label="{edge.src_output}"]' if edge.src_output else ""
        lines.append(f"  n{edge.src.id} -> n{edge.dst.id}{style};")
    return "\n".join([*lines, "}", ""])


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
