"""Types and known values of tensors of a graph, inferred at the first use.

A node is lowered with variables of the types of its inputs, and constants where their values are
known, so the type relations of weft's operators apply.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compat.graph.node import Edge, Facts, Node, OwnerGraph, Tensor
from weft.compat.graphdef.definitions import NodeDef
from weft.compat.graphdef.lowering import Environment, lower_node, stand_ins, tensor_types
from weft.compat.graphdef.ports import PLACEHOLDERS, declared_type
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError

# The input of a Merge from the previous iteration has the type of the other input.
BACK_EDGE = "NextIteration"


@dataclass(frozen=True, slots=True)
class Fact:
    """The facts of one tensor."""

    type: TensorType
    value: np.ndarray | None


def fact_of(tensor: Tensor) -> Fact:
    """The type and, if known, the value of a tensor."""
    facts = tensor.node.graph.facts_of(tensor.node)
    if tensor.index >= len(facts.types):
        raise InvalidModelError(f"there is no tensor {tensor.name!r}",
                                got=f"{tensor.node.name!r} has {len(facts.types)} outputs")
    return Fact(facts.types[tensor.index], facts.values[tensor.index])


def infer(graph: OwnerGraph, proto: NodeDef, inputs: Sequence[Fact]) -> Facts:
    """The facts of the results of ``proto``. Raises what ``lower_node`` raises."""
    env = Environment(graph.name, graph.library)
    span = env.span_of(proto)
    if proto.op in PLACEHOLDERS:
        return Facts((declared_type(proto, None, span),), (None,))
    values = [fact.value for fact in inputs]
    args = stand_ins([fact.type for fact in inputs], values, span)
    made = lower_node(env, proto, args, values)
    return Facts(tensor_types(env, proto, made.results), made.values)


def facts_of(graph: OwnerGraph, node: Node) -> Facts:
    """The facts of ``node``, and of all nodes before it without facts."""
    pending = [node]
    waiting: set[int] = set()
    while pending:
        current = pending[-1]
        if current.facts is not None:
            pending.pop()
            continue
        sources = [e.src for e in _edges(current) if e.src.facts is None]
        if sources and current.id not in waiting:
            waiting.add(current.id)
            pending.extend(sources)
            continue
        if sources:
            raise InvalidModelError("the graph has a cycle", where=graph.name,
                                    got=f"through {current.name!r}")
        pending.pop()
        inputs = [fact_of(Tensor(e.src, e.src_output)) for e in _edges(current)]
        current.facts = infer(graph, current.definition(), inputs)
    if node.facts is None:
        raise InvalidModelError(f"no types are known of {node.name!r}")
    return node.facts


def _edges(node: Node) -> list[Edge]:
    edges = node.data_edges
    if node.op in ("Merge", "RefMerge"):
        return [e for e in edges if e.src.op != BACK_EDGE]
    return edges
