"""Draws a graph as SVG in layers, without an external program.

Every node is below its operands. Within a layer, nodes are ordered by the mean position of their
neighbours, in a few sweeps down and up (the barycentre method of Sugiyama, Tagawa and Toda, 1981).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

from weft.ir.drawing import DrawnNode

MAX_NODES = 600
_CHARACTER, _LINE, _PADDING = 6.3, 14, 12
_BETWEEN_NODES, _BETWEEN_LAYERS = 18, 34
_SWEEPS = 4
_MAX_LINE = 44  # characters


def graph_svg(nodes: Sequence[DrawnNode]) -> str:
    """The drawing; colours come from CSS for ``node``, ``edge`` and the kinds of nodes."""
    texts = [[_shortened(line) for line in node.lines] for node in nodes]
    widths = [max(len(line) for line in text) * _CHARACTER + _PADDING for text in texts]
    layers = _ordered(_layers(nodes), nodes)
    centers, tops, size = _coordinates(layers, widths, [len(text) for text in texts])
    width, height = f"{size[0]:.0f}", f"{size[1]:.0f}"
    frame = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    elements = [f'<svg {frame} class="graph" role="img">']
    for number, node in enumerate(nodes):
        elements += [_edge(centers[used], tops[used] + _height(texts[used]), centers[number],
                        tops[number]) for used in node.inputs]
    for number, node in enumerate(nodes):
        whole = html.escape("\n".join(node.lines))
        elements.append(_box(node.kind, whole, texts[number], centers[number], tops[number],
                             widths[number]))
    return "".join([*elements, "</svg>"])


def _layers(nodes: Sequence[DrawnNode]) -> list[list[int]]:
    depths: list[int] = []
    for node in nodes:
        depths.append(1 + max((depths[used] for used in node.inputs), default=-1))
    layers: list[list[int]] = [[] for _ in range(max(depths) + 1)]
    for number, depth in enumerate(depths):
        layers[depth].append(number)
    return layers


def _ordered(layers: list[list[int]], nodes: Sequence[DrawnNode]) -> list[list[int]]:
    users: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        for used in node.inputs:
            users.setdefault(used, []).append(number)
    below = {number: node.inputs for number, node in enumerate(nodes)}
    for sweep in range(_SWEEPS):
        neighbours: Mapping[int, Sequence[int]] = below if sweep % 2 == 0 else users
        at = {number: (index + 0.5) / len(layer) for layer in layers
              for index, number in enumerate(layer)}
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            layer.sort(key=lambda number: (_mean([at[n] for n in neighbours.get(number, ())],
                                                 at[number]), number))
            at.update({number: (index + 0.5) / len(layer) for index, number in enumerate(layer)})
    return layers


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _coordinates(layers: Sequence[Sequence[int]], widths: Sequence[float], lines: Sequence[int]
            ) -> tuple[dict[int, float], dict[int, float], tuple[float, float]]:
    """The centre x and top y of every node, and the width and height of the drawing, in pixels."""
    rows = [sum(widths[n] + _BETWEEN_NODES for n in layer) for layer in layers]
    widest = max(rows)
    centers: dict[int, float] = {}
    tops: dict[int, float] = {}
    y = _PADDING * 1.0
    for layer, row in zip(layers, rows, strict=True):
        x = (widest - row) / 2
        for number in layer:
            centers[number] = x + (widths[number] + _BETWEEN_NODES) / 2
            tops[number] = y
            x += widths[number] + _BETWEEN_NODES
        y += max(lines[n] for n in layer) * _LINE + _PADDING + _BETWEEN_LAYERS
    return centers, tops, (widest, y)


def _height(text: Sequence[str]) -> float:
    return len(text) * _LINE + _PADDING


def _edge(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (y1 + y2) / 2
    return (f'<path class="edge" d="M{x1:.1f} {y1:.1f} C{x1:.1f} {middle:.1f} {x2:.1f} '
            f'{middle:.1f} {x2:.1f} {y2:.1f}"/>')


def _box(kind: str, whole: str, text: Sequence[str], center: float, top: float, width: float
         ) -> str:
    """A node; ``whole`` is the text that a pointer or a screen reader is told."""
    rows = "".join(f'<text x="{center:.1f}" y="{top + _PADDING + number * _LINE + 3:.1f}">'
                   f"{html.escape(line)}</text>" for number, line in enumerate(text))
    return (f'<g class="node {kind}"><title>{whole}</title>'
            f'<rect x="{center - width / 2:.1f}" y="{top:.1f}" '
            f'width="{width:.1f}" height="{_height(text):.1f}" rx="4"/>{rows}</g>')


def _shortened(line: str) -> str:
    return line if len(line) <= _MAX_LINE else f"{line[: _MAX_LINE - 1]}…"
