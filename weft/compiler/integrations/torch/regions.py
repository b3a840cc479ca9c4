"""Splitting a graph into regions that weft compiles; torch runs the operators between them.

The level of a node is the largest number of changes from torch to weft on a path to it. The nodes
of one level that weft supports form one region. Hence no two regions depend on each other, their
number is minimal, two walks find them, and operators that torch runs keep their order, so random
numbers are drawn in the order of the program.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx

from weft.compiler.integrations.torch.views import is_view, results_and_views
from weft.frontend.torch.calls import is_check, is_size_query, size_function

_EMPTY = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default,
          torch.ops.prims.empty_strided.default, torch.ops.aten.empty_permuted.default)

MakeRegion: TypeAlias = Callable[[torch.fx.GraphModule, Sequence[torch.fx.Node]],
                                 Callable[..., Any]]


def split(graph: torch.fx.GraphModule, taken: set[torch.fx.Node], make: MakeRegion
          ) -> torch.fx.GraphModule:
    """The graph with every region replaced by a call.

    ``taken`` are the nodes that weft compiles. ``make`` takes a region as a graph module, and the
    nodes that its placeholders stand for; it returns the function to call, which gives a list.
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
    """Add the region of the nodes ``inside`` to ``result``; ``moved`` maps nodes to it."""
    members = set(inside)
    inputs = list(dict.fromkeys(a for n in inside for a in n.all_input_nodes if a not in members))
    outputs, views = results_and_views(inside)
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
    """Copy the tensor or module that ``node`` refers to into the new graph's root."""
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
    """The level of every node: as early as possible if its order matters, else as late.

    The latter puts the operands of two torch calls into the region that follows both.
    """
    levels: dict[torch.fx.Node, int] = {}
    ordered, pinned = 0, set()
    for node in graph.nodes:
        if node in taken:
            levels[node] = max((levels[a] + (a not in taken and a.op != "placeholder")
                                for a in node.all_input_nodes), default=0)
            continue
        levels[node] = max((levels[a] for a in node.all_input_nodes), default=0)
        if _is_ordered(node):
            ordered = levels[node] = max(levels[node], ordered)
            pinned.add(node)
    last = max(levels.values(), default=0)
    for node in reversed(graph.nodes):
        if node not in pinned and node.op not in ("placeholder", "output"):
            levels[node] = min((_latest(node, u, taken, levels, last) for u in node.users),
                               default=levels[node])
    for node in graph.nodes:
        if node in taken and node.target is operator.getitem:  # with the call it projects
            levels[node] = levels[node.args[0]]
    return levels


def _latest(node: torch.fx.Node, user: torch.fx.Node, taken: set[torch.fx.Node],
            levels: Mapping[torch.fx.Node, int], last: int) -> int:
    """The last level at which ``node`` is still available to ``user``."""
    if user.op == "output":
        return last
    return levels[user] - (user in taken and node not in taken)


def _is_ordered(node: torch.fx.Node) -> bool:
    """Whether a call draws random numbers or has side effects."""
    if node.op in ("placeholder", "get_attr", "output"):
        return False
    if isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - the class has only this name
        return (torch.Tag.nondeterministic_seeded in node.target.tags
                or node.target._schema.is_mutable)  # noqa: SLF001
    return node.is_impure() or isinstance(node.target, torch._ops.HigherOrderOperator)  # noqa: SLF001


def _by_level(graph: torch.fx.Graph, taken: set[torch.fx.Node],
              levels: Mapping[torch.fx.Node, int]
              ) -> list[tuple[list[torch.fx.Node], list[torch.fx.Node]]]:
    """The nodes of every level in order: those of the region, and those that torch runs after."""
    count = max(levels.values(), default=0) + 1
    order: list[tuple[list[torch.fx.Node], list[torch.fx.Node]]] = [([], []) for _ in range(count)]
    for node in graph.nodes:
        if node.op not in ("placeholder", "output"):
            order[levels[node]][node not in taken].append(node)
    return order


def without_trivial_regions(graph: torch.fx.Graph, taken: set[torch.fx.Node]
                            ) -> set[torch.fx.Node]:
    """``taken`` without regions that only make views, which torch does in less time."""
    kept = set(taken)
    for node in reversed(graph.nodes):  # views whose users all run in torch
        is_item = node.target is operator.getitem
        if node in kept and not is_item and is_trivial(node) and not kept & node.users.keys():
            kept.discard(node)
    while True:
        levels = _levels(graph, kept)
        working = {levels[n] for n in kept if not is_trivial(n)}
        idle = {n for n in kept if levels[n] not in working}
        if not idle:
            return kept
        kept -= idle


def is_trivial(node: torch.fx.Node) -> bool:
    """Whether the node computes no elements: a view, a size, an item, a stored tensor."""
    return (node.op == "get_attr" or is_check(node) or is_size_query(node) or is_view(node)
            or size_function(node) is not None or node.target in _EMPTY)
