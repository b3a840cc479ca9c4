"""Programs as graphs of named nodes, in TensorFlow's terms: docs/graphs.md."""

from __future__ import annotations

from weft.frontend.graphdef import (
    ArgDef,
    AttrDef,
    AttrPlaceholder,
    FunctionDef,
    FunctionRef,
    GraphDef,
    Library,
    NodeDef,
    ShapeAttr,
    Versions,
)
from weft.graph.graph import Graph, default_graph
from weft.graph.node import SINK, SOURCE, Edge, Node, Tensor

__all__ = [
    "SINK",
    "SOURCE",
    "ArgDef",
    "AttrDef",
    "AttrPlaceholder",
    "Edge",
    "FunctionDef",
    "FunctionRef",
    "Graph",
    "GraphDef",
    "Library",
    "Node",
    "NodeDef",
    "ShapeAttr",
    "Tensor",
    "Versions",
    "default_graph",
]
