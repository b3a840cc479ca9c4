"""Passes of NNVM and its compiler that run on programs: weft's passes under NNVM's names."""

from __future__ import annotations

from typing import Any

from weft.compat.symbol.gradients import gradients
from weft.compat.symbol.graph import Graph, graph_pass
from weft.compat.symbol.lowering import to_module
from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.reading import from_module
from weft.compat.symbol.symbol import Group, Symbol, entries_of
from weft.compiler.api import compile as compile_model
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import make_context
from weft.ir import IRModule, Pass, PassContext, run_pass
from weft.transform import (
    AlterOpLayout,
    ConvertLayout,
    FoldConstant,
    FoldScaleAxis,
    FuseOps,
    SimplifyExpr,
    SimplifyInference,
    ToGraphNormalForm,
)

FACTS = ("shape", "dtype")


def module_of(graph: Graph) -> IRModule:
    """The program of a graph with the attributes ``shape`` and ``dtype``; ``params`` are values."""
    index = graph.index()
    shapes: dict[str, tuple[int, ...]] = {}
    dtypes: dict[str, str] = {}
    for number in index.input_nodes:
        entry = index.node_row_ptr[number]
        name = index.nodes[number].name
        if graph.attrs["shape"][entry] is not None:
            shapes[name] = graph.attrs["shape"][entry]
        if graph.attrs["dtype"][entry]:
            dtypes[name] = graph.attrs["dtype"][entry]
    return to_module(graph.outputs, shapes=shapes, dtypes=dtypes,
                     params=graph.attrs.get("params"))


def _through(graph: Graph, *passes: Pass, context: PassContext | None = None) -> Graph:
    """The graph of the program after ``passes``; its constants are the new ``params``."""
    mod = module_of(graph)
    for pass_ in passes:
        mod = run_pass(pass_, mod, context or PassContext())
    symbol, params = from_module(mod)
    return Graph(symbol.entries, {**graph.attrs, "params": params})


@graph_pass("SimplifyInference", depends=FACTS, provides=("params",), change_graph=True)
def simplify_inference(graph: Graph) -> Graph:
    """Batch normalisation as arithmetic; no dropout."""
    return _through(graph, SimplifyInference())


@graph_pass("FoldScaleAxis", depends=FACTS, provides=("params",), change_graph=True)
def fold_scale_axis(graph: Graph) -> Graph:
    """Scales moved into weights whose values are in ``params``."""
    return _through(graph, FoldConstant(), SimplifyExpr(), FoldConstant(), FoldScaleAxis(),
                    FoldConstant())


@graph_pass("AlterOpLayout", depends=(*FACTS, "target"), provides=("params",), change_graph=True)
def alter_op_layout(graph: Graph) -> Graph:
    """The layouts that are fastest on ``target``."""
    context = make_context(CompileOptions.make(graph.attrs["target"]))
    return _through(graph, AlterOpLayout(), context=context)


@graph_pass("CorrectLayout", depends=(*FACTS, "layouts"), provides=("params",), change_graph=True)
def correct_layout(graph: Graph) -> Graph:
    """The operators in the ``layouts`` (``"nn.conv2d:NHWC:HWIO"``), with conversions between."""
    return _through(graph, ConvertLayout(layouts=tuple(graph.attrs["layouts"])))


@graph_pass("GraphFusePartition", depends=FACTS, depends_op=("TOpPattern",), provides=("fused",))
def graph_fuse_partition(graph: Graph) -> Graph:
    """The program with one primitive function per kernel, as ``fused``."""
    mod = run_pass(FuseOps(), run_pass(ToGraphNormalForm(), module_of(graph), PassContext()),
                   PassContext())
    return graph.with_attrs(fused=mod)


@graph_pass("GraphFuseCompile", depends=("fused", "target"), depends_op=("FTVMCompute",),
            provides=("module",))
def graph_fuse_compile(graph: Graph) -> Graph:
    """The compiled program, as ``module``; mutated variables are its state."""
    states = Symbol(graph.outputs).states()
    return graph.with_attrs(module=compile_model(
        graph.attrs["fused"], target=graph.attrs["target"], state=states or None))


@graph_pass("Gradient", depends=("grad_ys", "grad_xs"), change_graph=True)
def gradient(graph: Graph) -> Graph:
    """The gradients of the results ``grad_ys`` by ``grad_xs``, as the results of the same graph.

    Both are symbols, entries, numbers of results or names, or lists of them; the options are those
    of ``gradients``, with ``grad_`` before their names, or by NNVM's names.
    """
    options = {name: graph.attrs[key] for name in (
        "aggregate_fun", "mirror_fun", "attr_hint_fun", "zero_ops", "copy_op")
        for key in (name, f"grad_{name}") if key in graph.attrs}
    found = gradients(_entries(graph, graph.attrs["grad_ys"]), _entries(graph, graph.attrs[
        "grad_xs"]), graph.attrs.get("grad_ys_out_grad"), **options)
    return Graph(Group(found), graph.attrs)


def _entries(graph: Graph, given: Any) -> list[NodeEntry]:
    """The entries that symbols, entries, numbers of results and names stand for."""
    if isinstance(given, (Symbol, NodeEntry)):
        return list(entries_of(given))
    if isinstance(given, int):
        return list(Symbol(graph.outputs)[given].entries)
    if isinstance(given, str):
        symbol = Symbol(graph.outputs).get_internals()
        return list(symbol[given].entries)
    return [entry for one in given for entry in _entries(graph, one)]


@graph_pass("PrecomputePrune", depends=("param_name_list",),
            provides=("precompute_graph", "output_names"), change_graph=True)
def precompute_prune(graph: Graph) -> Graph:
    """Split off the computations that parameters alone determine.

    ``param_name_list`` are variables that do not change. ``precompute_graph`` computes the values
    that the new graph reads as variables named ``output_names``.
    """
    params = set(graph.attrs["param_name_list"])
    known: set[Node] = set()
    for node in walk(graph.outputs):
        inputs = [e.node for e in node.inputs]
        if (node.is_variable and node.name in params) or (inputs and not node.control_deps \
                and all(n in known for n in inputs)):
            known.add(node)
    made: dict[Node, Node] = {}
    split: dict[NodeEntry, NodeEntry] = {}

    def entry_of(entry: NodeEntry) -> NodeEntry:
        if entry.node in known and not entry.node.is_variable:
            name = f"{entry.node.name}_output{entry.index}"
            return split.setdefault(entry, NodeEntry(Node(None, name, span=entry.node.span)))
        return NodeEntry(made[entry.node], entry.index, entry.version)

    for node in walk(graph.outputs):
        if node not in known or node.is_variable:
            new = made[node] = Node(node.op, node.name, node.attrs, span=node.span)
            new.version = node.version
            new.inputs = [entry_of(e) for e in node.inputs]
            new.control_deps = [made[n] for n in node.control_deps if n in made]
    outputs = [entry_of(e) for e in graph.outputs]
    return Graph(outputs, graph.attrs).with_attrs(
        precompute_graph=Graph(tuple(split)), output_names=[e.node.name for e in split.values()])
