"""A region compiled for all sizes that TorchDynamo traced as symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from weft.compiler.api import compile as compile_model
from weft.compiler.dynamic_model import DynamicModel
from weft.compiler.integrations.torch import outputs
from weft.compiler.integrations.torch.layout import Axes
from weft.compiler.integrations.torch.specialize import (
    Specialized,
    importer_of,
    order_in_memory,
    runner,
)
from weft.frontend.torch.dims import dim_of, symbol_of
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.program import Port, TorchProgram
from weft.ir.shape import SymDim
from weft.ir.symbol import SizeRange, symbol_text
from weft.ir.types import TensorType
from weft.support.errors import UnsupportedModelError

# Dynamo makes a symbol of a size that is neither 0 nor 1 at its first call.
_SIZES = SizeRange(1)


@dataclass(frozen=True, slots=True)
class GeneralRegion:
    """The compiled module of a region, and how tensors lie in memory at its edges."""

    graph: torch.fx.Graph
    compiled: DynamicModel
    inputs: tuple[tuple[int, Axes | None], ...]
    orders: Mapping[str, Axes | None]

    def at(self, args: Sequence[Any]) -> Specialized | None:
        """A function for arguments of these sizes; ``None`` if they are laid out otherwise."""
        if any(order_in_memory(args[p]) != order for p, order in self.inputs):
            return None
        placeholders, results = _edges(self.graph)
        symbols = outputs.symbols_of(placeholders, args)
        layouts = {n.name: outputs.layout_of(n.meta["val"], symbols) for n in results}
        if any(outputs.order_of(layouts[name]) != order for name, order in self.orders.items()):
            return None
        makers = [outputs.maker_of(layouts[n.name], n.meta["val"].dtype) for n in results]
        return runner(self.compiled, self.inputs, makers)


def general_region(graph: torch.fx.Graph, args: Sequence[Any], weights: frozenset[int],
                   settings: Mapping[str, Any]) -> GeneralRegion:
    """Compile a region for all sizes; ``args`` are those of a first call.

    The arguments at the positions ``weights`` become constants. Raises ``WeftError`` if weft needs
    fixed sizes.
    """
    placeholders, results = _edges(graph)
    if any(not isinstance(n.meta.get("val"), torch.Tensor) for n in results):
        raise UnsupportedModelError("a region that gives numbers needs fixed sizes")
    names = _names(placeholders)
    inputs = tuple((p, order_in_memory(value)) for p, value in enumerate(args)
                   if isinstance(value, torch.Tensor) and p not in weights)
    layouts = outputs.symbols_of(placeholders, args)
    orders = {n.name: outputs.order_of(outputs.layout_of(n.meta["val"], layouts)) for n in results}
    program = TorchProgram(
        graph, {placeholders[p].name: args[p] for p in weights},
        {n.name: _number(n.meta.get("val"), value, names)
         for n, value in zip(placeholders, args, strict=True)
         if not isinstance(value, torch.Tensor)},
        tuple(_port(placeholders[p], order, names) for p, order in inputs),
        tuple(_port(n, None, names) for n in results), tuple(n.name for n in results))
    importer = importer_of(program, inputs)
    module = importer.run({name: order for name, order in orders.items() if order is not None})
    compiled = compile_model(module, **settings)
    if not isinstance(compiled, DynamicModel) or compiled.general is None:
        raise UnsupportedModelError("the region needs fixed sizes")
    return GeneralRegion(graph, compiled, inputs, orders)


def _edges(graph: torch.fx.Graph) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """The placeholders and the results of a region."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    return placeholders, list(next(n for n in graph.nodes if n.op == "output").args[0])


def _names(placeholders: Sequence[torch.fx.Node]) -> dict[str, str]:
    """The symbols of the trace that sizes of tensors determine, with their ranges."""
    return {symbol: symbol_text(symbol, _SIZES)
            for node in placeholders if isinstance(value := node.meta.get("val"), torch.Tensor)
            for size in value.shape if (symbol := symbol_of(size)) is not None}


def _number(traced: Any, value: Any, names: Mapping[str, str]) -> Any:
    """A number among the arguments: a symbol that a tensor determines, or its value if constant."""
    if not isinstance(traced, torch.SymInt):
        return value
    dim = dim_of(traced, names)
    if not isinstance(dim, SymDim) or not dim.symbols() <= set(names.values()):
        raise UnsupportedModelError("a number that the shapes of tensors do not determine",
                                    got=str(traced))
    return dim


def _port(node: torch.fx.Node, order: Axes | None, names: Mapping[str, str]) -> Port:
    value = node.meta["val"]
    sizes = [dim_of(size, names) for size in value.shape]
    shape = sizes if order is None else [sizes[axis] for axis in order]
    return Port(node.name, TensorType(tuple(shape), dtype_of(value.dtype, f"tensor {node.name}")))
