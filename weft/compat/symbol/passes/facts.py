"""Passes that find, save or print facts of a graph, and ``OrderMutation``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compat.symbol.graph import Graph, IndexedGraph, graph_pass
from weft.compat.symbol.inference import Inference, is_known
from weft.compat.symbol.json_format import load_json, save_json
from weft.compat.symbol.ordering import with_order


def inference_of(graph: Graph) -> Inference:
    """The facts that ``shape_inputs`` and ``dtype_inputs`` determine.

    Both are lists in the order of the variables, or mappings from their names.
    """
    index = graph.index()
    return Inference(graph.outputs, _by_name(index, graph.attrs.get("shape_inputs")),
                     _by_name(index, graph.attrs.get("dtype_inputs"))).run()


def _by_name(index: IndexedGraph, given: Any) -> dict[str, Any]:
    if given is None or isinstance(given, dict):
        return dict(given or {})
    names = [index.nodes[i].name for i in index.input_nodes]
    return {name: value for name, value in zip(names, given, strict=False) if value}


def _every(index: IndexedGraph, get: Any) -> list[Any]:
    return [get(node, i) for node in index.nodes for i in range(node.num_outputs)]


@graph_pass("InferShape", provides=("shape", "shape_num_unknown_nodes"))
def infer_shape(graph: Graph) -> Graph:
    """The shape of each entry from ``shape_inputs``; 0 is an unknown size, ``None`` no rank."""
    known, index = inference_of(graph), graph.index()
    shapes = _every(index, known.shape)
    unknown = sum(not is_known(s) for s in shapes)
    return graph.with_attrs(shape=shapes, shape_num_unknown_nodes=unknown)


@graph_pass("InferType", provides=("dtype", "dtype_num_unknown_nodes"))
def infer_dtype(graph: Graph) -> Graph:
    """The dtype of each entry from ``dtype_inputs``, as a name; empty where it is unknown."""
    known, index = inference_of(graph), graph.index()
    dtypes = ["" if d is None else d.name for d in _every(index, known.dtype)]
    return graph.with_attrs(dtype=dtypes, dtype_num_unknown_nodes=dtypes.count(""))


@graph_pass("SaveJSON", provides=("json",))
def save(graph: Graph) -> Graph:
    """The graph and its attributes as the text ``json``."""
    return graph.with_attrs(json=save_json(graph.outputs, graph.attrs))


@graph_pass("LoadJSON", depends=("json",), change_graph=True)
def load(graph: Graph) -> Graph:
    """The graph of the text ``json``."""
    return Graph(*load_json(graph.attrs["json"]))


@graph_pass("OrderMutation", depends_op=("FMutateInputs",), change_graph=True)
def order_mutation(graph: Graph) -> Graph:
    """Control dependencies between the nodes that read and mutate a variable."""
    return Graph(with_order(graph.outputs), graph.attrs)


@graph_pass("PrintGraphIR", provides=("graphir",))
def print_graph_ir(graph: Graph) -> Graph:
    """The graph as the text ``graphir``, with the attributes named in ``join_entry_attrs``."""
    index = graph.index()
    joined = [(name, graph.attrs[name]) for name in graph.attrs.get("join_entry_attrs", ())]
    lines = []
    for number, node in enumerate(index.nodes):
        inputs = ", ".join(f"%{index.entry_id(e)}" for e in node.inputs)
        attrs = ", ".join(f"{k}={v!r}" for k, v in sorted(node.attrs.items()))
        call = "variable" if node.op is None else f"{node.op.name}({inputs})"
        first = index.node_row_ptr[number]
        results = [f"%{first + i}" + _facts(first + i, joined) for i in range(node.num_outputs)]
        deps = f" after [{', '.join(n.name for n in node.control_deps)}]" \
            if node.control_deps else ""
        lines.append(f"{', '.join(results)} = {call} // {node.name}"
                     + (f": {attrs}" if attrs else "") + deps)
    lines.append(f"return {', '.join(f'%{i}' for i in index.output_ids)}")
    return graph.with_attrs(graphir="\n".join(lines) + "\n")


def _facts(entry: int, joined: Sequence[tuple[str, Sequence[Any]]]) -> str:
    return "".join(f" {name}={values[entry]}" for name, values in joined)
