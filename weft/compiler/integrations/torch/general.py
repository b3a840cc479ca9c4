"""A region compiled for all sizes that TorchDynamo traced as symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
import torch.fx

from weft.compiler.api import compile as compile_model
from weft.compiler.integrations.torch.fallback import may_run_in_torch
from weft.compiler.integrations.torch.layout import Axes, maker_of, order_of
from weft.compiler.integrations.torch.specialize import (
    Specialized,
    importer_of,
    order_in_memory,
    runner,
)
from weft.compiler.integrations.torch.traced_sizes import TracedSizes
from weft.frontend.torch.dims import dim_of, symbol_of
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.program import Port, TorchProgram
from weft.ir import Dim, SizeRange, SymDim, TensorType, symbol_text
from weft.runtime.executable import Executable
from weft.support.errors import UnsupportedModelError, WeftError

# Symbols that are taken to be equal, group by group.
Groups: TypeAlias = tuple[tuple[str, ...], ...]

# Dynamo makes a symbol of a size that is neither 0 nor 1 at its first call.
_SIZES = SizeRange(1)


class GeneralRegion:
    """The compiled module of a region, and how tensors lie in memory at its edges.

    ``inputs`` are the positions of tensors among the arguments, and the order of their axes in
    memory; ``orders`` those of the results. The module takes the symbols of a group of ``equal`` to
    be one.
    """

    def __init__(self, graph: torch.fx.Graph, compiled: Executable,
                 inputs: tuple[tuple[int, Axes | None], ...], orders: tuple[Axes | None, ...],
                 equal: Groups) -> None:
        placeholders, results = _edges(graph)
        sizes = TracedSizes(placeholders, results)
        self.equal = equal
        self._compiled, self._inputs, self._orders = compiled, inputs, orders
        self._layouts = sizes.layouts
        self._groups = [sizes.values(group) for group in equal]
        self._dtypes = [node.meta["val"].dtype for node in results]

    def is_contradicted(self, args: Sequence[Any]) -> bool:
        """Whether ``args`` give different values to symbols that the module takes to be equal."""
        return any(len(set(values(args))) > 1 for values in self._groups)

    def at(self, args: Sequence[Any]) -> Specialized | None:
        """A function for arguments of these sizes; ``None`` if they are laid out otherwise, or
        contradict the module.
        """
        if self.is_contradicted(args) or any(order_in_memory(args[p]) != order
                                             for p, order in self._inputs):
            return None
        layouts = self._layouts(args)
        if tuple(map(order_of, layouts)) != self._orders:
            return None
        makers = [maker_of(layout, dtype)
                  for layout, dtype in zip(layouts, self._dtypes, strict=True)]
        return runner(self._compiled, self._inputs, makers)


def general_region(graph: torch.fx.Graph, args: Sequence[Any], weights: frozenset[int],
                   settings: Mapping[str, Any], within: Groups | None = None) -> GeneralRegion:
    """Compile a region for all sizes; ``args`` are those of a first call.

    The arguments at the positions ``weights`` become constants. TorchDynamo gives sizes symbols of
    their own although an operator needs them to be equal: the lengths of the caches of keys and of
    values. If the types then contradict, symbols with equal values in ``args`` become one; with
    ``within``, those that are equal there too. Raises ``WeftError`` if weft needs fixed sizes.
    """
    try:
        return _general_region(graph, args, weights, settings, ())
    except WeftError as error:
        if not may_run_in_torch(error):
            raise
        groups = groups_of(_values(graph, args), within)
        if not groups:
            raise
        return _general_region(graph, args, weights, settings, groups)


def _general_region(graph: torch.fx.Graph, args: Sequence[Any], weights: frozenset[int],
                    settings: Mapping[str, Any], equal: Groups) -> GeneralRegion:
    placeholders, results = _edges(graph)
    if any(not isinstance(n.meta.get("val"), torch.Tensor) for n in results):
        raise UnsupportedModelError("a region that gives numbers needs fixed sizes")
    names = _names(placeholders, equal)
    inputs = tuple((p, order_in_memory(value)) for p, value in enumerate(args)
                   if isinstance(value, torch.Tensor) and p not in weights)
    layouts = TracedSizes(placeholders, results).layouts(args)
    orders = tuple(map(order_of, layouts))
    program = TorchProgram(
        graph, {placeholders[p].name: args[p] for p in weights},
        {n.name: _number(n.meta.get("val"), value, names)
         for n, value in zip(placeholders, args, strict=True)
         if not isinstance(value, torch.Tensor)},
        tuple(_port(placeholders[p], order, names) for p, order in inputs),
        tuple(_port(n, None, names) for n in results), tuple(n.name for n in results))
    importer = importer_of(program, inputs)
    module = importer.run({node.name: order for node, order in zip(results, orders, strict=True)
                           if order is not None})
    compiled = compile_model(module, **settings)
    if not (compiled.is_dynamic and compiled.runs_here) or compiled.general is None:
        raise UnsupportedModelError("the region needs fixed sizes")
    return GeneralRegion(graph, compiled, inputs, orders, equal)


def _edges(graph: torch.fx.Graph) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """The placeholders and the results of a region."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    return placeholders, list(next(n for n in graph.nodes if n.op == "output").args[0])


def _names(placeholders: Sequence[torch.fx.Node], equal: Groups) -> dict[str, Dim]:
    """The symbols of the trace that sizes of tensors determine, with their ranges."""
    first = {symbol: group[0] for group in equal for symbol in group}
    return {symbol: SymDim.symbol(symbol_text(first.get(symbol, symbol), _SIZES))
            for symbol in _symbols(placeholders)}


def _symbols(placeholders: Sequence[torch.fx.Node]) -> Iterator[str]:
    """The symbols that are sizes of tensors."""
    for node in placeholders:
        value = node.meta.get("val")
        for size in value.shape if isinstance(value, torch.Tensor) else ():
            symbol = symbol_of(size)
            if symbol is not None:
                yield symbol


def _values(graph: torch.fx.Graph, args: Sequence[Any]) -> dict[str, int]:
    """The values of the symbols that are sizes of tensors."""
    placeholders, _ = _edges(graph)
    symbols = tuple(dict.fromkeys(_symbols(placeholders)))
    return dict(zip(symbols, TracedSizes(placeholders, ()).values(symbols)(args), strict=True))


def groups_of(values: Mapping[str, int], within: Groups | None) -> Groups:
    """The symbols with equal values, two or more of each; subsets of groups in ``within``."""
    found: dict[tuple[int, int], list[str]] = {}
    for number, group in enumerate([tuple(values)] if within is None else within):
        for symbol in group:
            found.setdefault((number, values[symbol]), []).append(symbol)
    return tuple(tuple(group) for group in found.values() if len(group) > 1)


def _number(traced: Any, value: Any, names: Mapping[str, Dim]) -> Any:
    """A number among the arguments: a symbol that a tensor determines, or its value if constant."""
    if not isinstance(traced, torch.SymInt):
        return value
    dim = dim_of(traced, names)
    if not isinstance(dim, SymDim) or not dim.symbols() <= set(map(str, names.values())):
        raise UnsupportedModelError("a number that the shapes of tensors do not determine",
                                    got=str(traced))
    return dim


def _port(node: torch.fx.Node, order: Axes | None, names: Mapping[str, Dim]) -> Port:
    value = node.meta["val"]
    sizes = [dim_of(size, names) for size in value.shape]
    shape = sizes if order is None else [sizes[axis] for axis in order]
    return Port(node.name, TensorType(tuple(shape), dtype_of(value.dtype, f"tensor {node.name}")))
