"""Stacks at the boundary of a region: the program takes their items and gives their operands.

The steps of an unrolled recurrence save hundreds of tensors of the same shapes. The forward gives
them as few stacks, which the backward unbinds (``partition``). Neither costs a copy: the program of
a region writes the operands of a stack to the memory of the result, and reads the items of an
unbound argument where they are.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np
import torch
import torch.fx

from weft.compiler.integrations.torch.layout import Maker, maker_of
from weft.runtime.executable import Executable
from weft.runtime.outputs import no_blocks, output_maker
from weft.support.dataclass import dataclass

aten = torch.ops.aten
# From the arrays that a program takes to its results.
Call: TypeAlias = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Opened:
    """A region's ``graph`` with the items of unbound arguments, and the operands of stacks.

    ``items`` and ``operands`` are their numbers, by argument and by result of the region; 0 for
    those passed without a stack. ``results`` are the nodes of the results.
    """

    graph: torch.fx.Graph
    items: tuple[int, ...]
    operands: tuple[int, ...]
    results: tuple[torch.fx.Node, ...]

    @property
    def tensor_operands(self) -> list[int]:
        """``operands`` without results that are numbers."""
        return [count for count, node in zip(self.operands, self.results, strict=True)
                if isinstance(node.meta.get("val"), torch.Tensor)]

    def flat(self, args: Sequence[Any]) -> list[Any]:
        """The arguments of ``graph`` for those of the region."""
        return [value for arg, count in zip(args, self.items, strict=True)
                for value in (arg.contiguous().unbind(0) if count else (arg,))]

    def makers(self, makers: Sequence[Maker]) -> list[Maker]:
        """What makes the results of the region, for what makes those of ``graph``."""
        starts = accumulate((count or 1 for count in self.operands), initial=0)
        return [maker_of(None, node.meta["val"].dtype) if count else makers[start]
                for node, count, start in zip(self.results, self.operands, starts, strict=False)]


def opened(graph: torch.fx.Graph, weights: frozenset[int]) -> Opened | None:
    """The opened region, if it has stacks; arguments at the positions ``weights`` are not."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    results = list(next(n for n in graph.nodes if n.op == "output").args[0])
    unbound = {node: call for position, node in enumerate(placeholders)
               if position not in weights and (call := _unbound(node)) is not None}
    stacks = {node for node in results if _is_stack(node)}
    if not unbound and not stacks:
        return None
    own, moved = torch.fx.Graph(), {}
    for node in placeholders:
        if node in unbound:
            moved.update(_add_items(own, node, unbound[node]))
        else:
            moved[node] = own.node_copy(node)
    left_out = {*placeholders, *unbound.values(), *stacks}
    for node in graph.nodes:
        if node not in left_out and node not in moved and node.op != "output":
            moved[node] = own.node_copy(node, lambda n: moved[n])
    given: dict[torch.fx.Node, None] = {moved[n]: None for n in results
                                        if isinstance(n, torch.fx.Node) and n not in stacks}
    outputs: list[Any] = []
    for result in results:
        if result in stacks:
            outputs += [_once(own, moved[n], given) for n in result.args[0]]
        else:
            outputs.append(torch.fx.map_arg(result, lambda n: moved[n]))
    own.output(outputs)
    own.owning_module = graph.owning_module
    return Opened(own, tuple(len(unbound[n].meta["val"]) if n in unbound else 0
                             for n in placeholders),
                  tuple(len(n.args[0]) if n in stacks else 0 for n in results), tuple(results))


def _unbound(node: torch.fx.Node) -> torch.fx.Node | None:
    """The only use of a row-major argument, if that unbinds its first axis."""
    call = next(iter(node.users), None)
    if call is None or len(node.users) > 1 or call.target is not aten.unbind.int \
            or (call.args[1:] or (0,)) != (0,) or not _is_plain(node, 2):
        return None
    return call if all(user.target is operator.getitem for user in call.users) else None


def _is_stack(node: Any) -> bool:
    """Whether a result stacks row-major tensors by their first axis, and has no other use."""
    return (isinstance(node, torch.fx.Node) and node.target is aten.stack.default
            and len(node.users) == 1 and (node.args[1:] or (0,)) == (0,) and len(node.args[0]) > 1
            and _is_plain(node, 2) and all(_is_plain(n, 1) for n in node.args[0]))


def _is_plain(node: torch.fx.Node, rank: int) -> bool:
    value = node.meta.get("val")
    return (isinstance(value, torch.Tensor) and value.ndim >= rank
            and all(isinstance(size, int) for size in value.shape)
            and value.numel() > 0 and value.is_contiguous() and not value.is_complex())


def _add_items(graph: torch.fx.Graph, node: torch.fx.Node, call: torch.fx.Node
               ) -> dict[torch.fx.Node, torch.fx.Node]:
    """Add placeholders for all items; the result maps the nodes that read them."""
    items = []
    for number, value in enumerate(call.meta["val"]):
        items.append(graph.placeholder(f"{node.name}_{number}"))
        items[-1].meta["val"] = value
    return {user: items[user.args[1]] for user in call.users}  # type: ignore[index]


def _once(graph: torch.fx.Graph, node: torch.fx.Node, given: dict[torch.fx.Node, None]
          ) -> torch.fx.Node:
    """The node, or a copy of it if it is an argument or already a result."""
    if node.op == "placeholder" or node in given:
        value = node.meta["val"]
        node = graph.call_function(aten.clone.default, (node,))
        node.meta["val"] = value
    given[node] = None
    return node


def stacking_call(compiled: Executable, operands: Sequence[int]) -> Call:
    """Calls of a program that gives ``operands``: its results with the stacks of these numbers."""
    specs, makers, start = compiled.outputs, [], 0
    for count in operands:
        spec = specs[start]
        makers.append(output_maker(replace(spec, shape=(count, *spec.shape)), no_blocks())
                      if count else None)
        start += count or 1

    def call(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        launch = compiled.launch_for(arrays)
        if launch.launcher.takes_device_arrays or launch.counted is not None:
            parts = iter(launch.execute(arrays))
            return [np.stack([next(parts) for _ in range(count)]) if count else next(parts)
                    for count in operands]
        given: list[np.ndarray] = []
        results = []
        for count, make in zip(operands, makers, strict=True):
            result = launch.makers[len(given)]() if make is None else make()
            results.append(result)
            given.extend(result if count else (result,))
        launch.execute_into(arrays, given)
        return results

    return call
