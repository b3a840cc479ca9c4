"""A graph in regions: weft compiles them, torch runs the operators between them.

Every node has a level: how many times the longest way to it changes from torch to weft. The nodes
of one level that weft takes are one region. So no two regions need each other, there are as few as
there can be, they are found in one walk, and operators that torch runs keep their order: random
numbers are drawn as the program draws them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx

from weft.compiler.integrations.torch.views import crossing, is_view
from weft.frontend.torch.calls import is_check, is_size_query, size_function

MakeRegion: TypeAlias = Callable[[torch.fx.GraphModule, Sequence[torch.fx.Node]],
                                 Callable[..., Any]]


def split(graph: torch.fx.GraphModule, taken: set[torch.fx.Node], make: MakeRegion
          ) -> torch.fx.GraphModule:
    """The graph with a call in the place of every region.

    ``taken`` are the nodes that weft takes. ``make`` gets a region as a graph module and the nodes
    that its placeholders stand for; what it gives is called in its place, and returns a list.
    """
    levels = _levels(graph.graph, taken)
    result, moved = torch.fx.Graph(), {}
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            moved[node] = result.node_copy(node)
    root = torch.nn.Module()
    order = _by_level(graph.graph, taken, levels)
    for inside, outside in order:
        _add_region(graph, inside, make, result, moved)
        for node in outside:
            _ensure_attribute(graph, node, root)
            moved[node] = result.node_copy(node, lambda n: moved[n])
    output = next(n for n in graph.graph.nodes if n.op == "output")
    result.output(torch.fx.map_arg(output.args[0], lambda n: moved[n]))
    return torch.fx.GraphModule(root, result)


def _add_region(graph: torch.fx.GraphModule, inside: Sequence[torch.fx.Node], make: MakeRegion,
                result: torch.fx.Graph, moved: dict[torch.fx.Node, torch.fx.Node]) -> None:
    """Adds the region of the nodes ``inside`` to ``result``; ``moved`` are the nodes there."""
    members = set(inside)
    inputs = list(dict.fromkeys(a for n in inside for a in n.all_input_nodes if a not in members))
    outputs, views = crossing(inside)
    own, inner = torch.fx.Graph(), {}
    for node in inputs:
        inner[node] = own.placeholder(node.name)
        inner[node].meta = dict(node.meta)
    for node in inside:
        inner[node] = own.node_copy(node, lambda n: inner[n])
    own.output([inner[n] for n in outputs])
    own.eliminate_dead_code()
    if outputs:
        called = make(torch.fx.GraphModule(graph, own), inputs)
        call = result.call_function(called, tuple(moved[n] for n in inputs))
        for number, node in enumerate(outputs):
            moved[node] = result.call_function(operator.getitem, (call, number))
            moved[node].meta = dict(node.meta)
    for node in views:
        moved[node] = result.node_copy(node, lambda n: moved[n])


def _ensure_attribute(graph: torch.fx.GraphModule, node: torch.fx.Node, root: torch.nn.Module
                      ) -> None:
    """Tensors and modules that belong to the graph, in the graph that is made of it."""
    if node.op not in ("get_attr", "call_module"):
        return
    *path, last = str(node.target).split(".")
    source: Any = graph
    for part in path:
        source = getattr(source, part)
        if not hasattr(root, part):
            setattr(root, part, torch.nn.Module())
        root = getattr(root, part)
    setattr(root, last, getattr(source, last))


def _levels(graph: torch.fx.Graph, taken: set[torch.fx.Node]) -> dict[torch.fx.Node, int]:
    levels: dict[torch.fx.Node, int] = {}
    ordered = 0  # the level of the last call whose place in the order matters
    for node in graph.nodes:
        if node in taken:
            levels[node] = max((levels[a] + (a not in taken and a.op != "placeholder")
                                for a in node.all_input_nodes), default=0)
            continue
        levels[node] = max((levels[a] for a in node.all_input_nodes), default=0)
        if _keeps_its_place(node):
            ordered = levels[node] = max(levels[node], ordered)
    return levels


def _keeps_its_place(node: torch.fx.Node) -> bool:
    """Whether a call draws random numbers or changes something."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - has no other name
        return (torch.Tag.nondeterministic_seeded in node.target.tags
                or node.target._schema.is_mutable)  # noqa: SLF001
    return node.is_impure() or isinstance(node.target, torch._ops.HigherOrderOperator)  # noqa: SLF001


def _by_level(graph: torch.fx.Graph, taken: set[torch.fx.Node],
              levels: Mapping[torch.fx.Node, int]
              ) -> list[tuple[list[torch.fx.Node], list[torch.fx.Node]]]:
    """For every level its nodes in their order: those of the region, and those after it."""
    count = max(levels.values(), default=0) + 1
    order: list[tuple[list[torch.fx.Node], list[torch.fx.Node]]] = [([], []) for _ in range(count)]
    for node in graph.nodes:
        if node.op not in ("placeholder", "output"):
            order[levels[node]][node not in taken].append(node)
    return order


def without_trivial_regions(graph: torch.fx.Graph, taken: set[torch.fx.Node]
                            ) -> set[torch.fx.Node]:
    """``taken`` without the regions that compute nothing: torch makes views in less time."""
    kept = set(taken)
    while True:
        levels = _levels(graph, kept)
        working = {levels[n] for n in kept if not is_trivial(n)}
        idle = {n for n in kept if levels[n] not in working}
        if not idle:
            return kept
        kept -= idle


def is_trivial(node: torch.fx.Node) -> bool:
    """Whether the node computes nothing: a view, a size, an item, a tensor of the graph's."""
    if node.op == "get_attr" or is_check(node) or is_size_query(node) \
            or size_function(node) is not None:
        return True
    return is_view(node)
