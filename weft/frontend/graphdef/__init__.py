"""TensorFlow's GraphDef: reading, writing, and conversion to weft's functional IR."""

from __future__ import annotations

from weft.frontend.graphdef.definitions import (
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
from weft.frontend.graphdef.importer import from_graphdef

__all__ = [
    "ArgDef",
    "AttrDef",
    "AttrPlaceholder",
    "ForeignType",
    "FunctionDef",
    "FunctionRef",
    "GraphDef",
    "Library",
    "NodeDef",
    "ShapeAttr",
    "Versions",
    "from_graphdef",
]
