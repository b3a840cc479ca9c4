"""Programs as graphs of named nodes, in TensorFlow's terms: docs/graphs.md."""

from __future__ import annotations

from weft.compat.graph.from_module import from_module
from weft.compat.graph.graph import Graph, default_graph
from weft.compat.graph.import_graph import ImportResults, import_graph
from weft.compat.graph.inline import expand_inline_functions
from weft.compat.graph.node import SINK, SOURCE, Edge, Node, Tensor
from weft.compat.graph.optimizer import (
    AdagradOptimizer,
    AdamOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
)
from weft.compat.graph.session import Session
from weft.compat.graph.to_tensorflow import to_tensorflow
from weft.compat.graph.walks import (
    dfs,
    fixup_source_and_sink_edges,
    get_post_order,
    get_reverse_post_order,
    prune_for_reverse_reachability,
    reverse_dfs,
)
from weft.compat.graphdef import (
    ArgDef,
    AttrDef,
    AttrPlaceholder,
    FunctionDef,
    FunctionRef,
    GraphDef,
    GraphDefModel,
    Library,
    NodeDef,
    ShapeAttr,
    Versions,
)

__all__ = ["SINK", "SOURCE", "AdagradOptimizer", "AdamOptimizer", "ArgDef", "AttrDef",
           "AttrPlaceholder", "Edge", "FunctionDef", "FunctionRef", "GradientDescentOptimizer",
           "Graph", "GraphDef", "GraphDefModel", "ImportResults", "Library", "MomentumOptimizer",
           "Node", "NodeDef", "Optimizer", "Session", "ShapeAttr", "Tensor", "Versions",
           "default_graph", "dfs", "expand_inline_functions", "fixup_source_and_sink_edges",
           "from_module", "get_post_order", "get_reverse_post_order", "import_graph",
           "prune_for_reverse_reachability", "reverse_dfs", "to_tensorflow"]
