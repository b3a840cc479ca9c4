"""Graphs as symbols: NNVM's interface to build, inspect and transform graphs (docs/symbols.md).

``Variable`` and the operators in ``op`` build symbols; ``weft.compile`` takes them. ``Graph`` with
``apply`` runs NNVM's passes. ``set_attr`` and ``get_attr`` are the slots of operators.
"""

import weft.compat.symbol.nnvm_array_ops
import weft.compat.symbol.nnvm_layers
import weft.compat.symbol.nnvm_ops
import weft.compat.symbol.nnvm_slots
import weft.compat.symbol.passes.facts
import weft.compat.symbol.passes.place_device
import weft.compat.symbol.passes.plan_memory
import weft.compat.symbol.passes.programs  # noqa: F401 - registers operators, slots, passes
from weft.compat.symbol.gradients import gradients
from weft.compat.symbol.graph import (
    GRAPH_PASSES,
    Graph,
    GraphPass,
    IndexedGraph,
    apply_passes,
    graph_pass,
)
from weft.compat.symbol.json_format import load_json, save_json
from weft.compat.symbol.lowering import to_module
from weft.compat.symbol.names import op
from weft.compat.symbol.node import Node, NodeEntry
from weft.compat.symbol.operator import SymbolOp
from weft.compat.symbol.optimizer import SGD, Adam, Optimizer, factor_schedule
from weft.compat.symbol.reading import from_module
from weft.compat.symbol.scope import AttrScope, name_prefix
from weft.compat.symbol.session import Session
from weft.compat.symbol.slots import get_attr, has_attr, reset_attr, set_attr
from weft.compat.symbol.symbol import Group, Symbol, Variable, apply_operator

__all__ = ["GRAPH_PASSES", "SGD", "Adam", "AttrScope", "Graph", "GraphPass", "Group",
           "IndexedGraph", "Node", "NodeEntry", "Optimizer", "Session", "Symbol", "SymbolOp",
           "Variable", "apply_operator", "apply_passes", "factor_schedule", "from_module",
           "get_attr", "gradients", "graph_pass", "has_attr", "load_json", "name_prefix", "op",
           "reset_attr", "save_json", "set_attr", "to_module"]
