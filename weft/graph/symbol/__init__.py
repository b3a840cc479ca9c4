"""Graphs as symbols: NNVM's interface to build, inspect and transform graphs (docs/symbols.md).

``Variable`` and the operators in ``op`` build symbols; ``weft.compile`` takes them. ``Graph`` with
``apply`` runs NNVM's passes. ``set_attr`` and ``get_attr`` are the slots of operators.
"""

import weft.graph.symbol.nnvm_array_ops
import weft.graph.symbol.nnvm_layers
import weft.graph.symbol.nnvm_ops
import weft.graph.symbol.nnvm_slots
import weft.graph.symbol.passes.facts
import weft.graph.symbol.passes.place_device
import weft.graph.symbol.passes.plan_memory
import weft.graph.symbol.passes.programs  # noqa: F401 - registers operators, slots, passes
from weft.graph.symbol.gradients import gradients
from weft.graph.symbol.graph import (
    GRAPH_PASSES,
    Graph,
    GraphPass,
    IndexedGraph,
    apply_passes,
    graph_pass,
)
from weft.graph.symbol.json_format import load_json, save_json
from weft.graph.symbol.lowering import to_module
from weft.graph.symbol.names import op
from weft.graph.symbol.node import Node, NodeEntry
from weft.graph.symbol.operator import SymbolOp
from weft.graph.symbol.reading import from_module
from weft.graph.symbol.scope import AttrScope, name_prefix
from weft.graph.symbol.slots import get_attr, has_attr, reset_attr, set_attr
from weft.graph.symbol.symbol import Group, Symbol, Variable, apply_operator

__all__ = [
    "GRAPH_PASSES",
    "AttrScope",
    "Graph",
    "GraphPass",
    "Group",
    "IndexedGraph",
    "Node",
    "NodeEntry",
    "Symbol",
    "SymbolOp",
    "Variable",
    "apply_operator",
    "apply_passes",
    "from_module",
    "get_attr",
    "gradients",
    "graph_pass",
    "has_attr",
    "load_json",
    "name_prefix",
    "op",
    "reset_attr",
    "save_json",
    "set_attr",
    "to_module",
]
