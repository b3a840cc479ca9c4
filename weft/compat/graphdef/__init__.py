"""TensorFlow's GraphDef: reading, writing, and conversion to weft's functional IR."""

from __future__ import annotations

from weft.compat.graphdef.definitions import (
    ArgDef,
    AttrDef,
    AttrPlaceholder,
    ForeignType,
    FunctionDef,
    FunctionRef,
    GraphDef,
    Library,
    NodeDef,
    ShapeAttr,
    Versions,
)
from weft.compat.graphdef.files import (
    graph_def_bytes,
    graph_def_text,
    parse_graph_def,
    read_graph_def,
    write_graph_def,
)
from weft.compat.graphdef.importer import GraphDefModel, from_graphdef

__all__ = ["ArgDef", "AttrDef", "AttrPlaceholder", "ForeignType", "FunctionDef", "FunctionRef",
           "GraphDef", "GraphDefModel", "Library", "NodeDef", "ShapeAttr", "Versions",
           "from_graphdef", "graph_def_bytes", "graph_def_text", "parse_graph_def",
           "read_graph_def", "write_graph_def"]
