"""Compiling a region for the shapes and weights of one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.fx

from weft.compiler.api import compile as compile_model
from weft.compiler.integrations.torch.layout import (
    Axes,
    Maker,
    inverse,
    maker_of,
    memory_order,
    number_maker,
    order_of,
)
from weft.compiler.integrations.torch.stacks import Call, opened, stacking_call
from weft.compiler.integrations.torch.traced_sizes import TracedSizes
from weft.frontend.torch.dtypes import array_of, dtype_of
from weft.frontend.torch.importer import GraphImporter
from weft.frontend.torch.program import Port, TorchProgram
from weft.ir import TensorType, Var
from weft.runtime.executable import Executable
from weft.support.fallback import Fallback, module_log, report

# From all arguments of a region to its results.
Specialized = Callable[[Sequence[Any]], list[Any]]


def specialize(graph: torch.fx.Graph, args: Sequence[Any], weights: frozenset[int],
               settings: Mapping[str, Any]) -> Specialized:
    """A compiled function for arguments of the shapes of ``args``.

    The arguments at the positions ``weights`` become constants.

    Raises what ``weft.compile`` raises.
    """
    inside = opened(graph, weights)
    if inside is None:
        compiled, inputs, makers = _compiled(graph, args, weights, settings)
        return _without_tensors(makers) if compiled is None else runner(compiled, inputs, makers)
    starts = [0, *accumulate(count or 1 for count in inside.items)]
    compiled, inputs, makers = _compiled(inside.graph, inside.flat(args),
                                         frozenset(starts[p] for p in weights), settings)
    if compiled is None:
        return _without_tensors(makers)
    orders = dict(inputs)
    edges = [(p, orders[start]) for p, start in enumerate(starts[:-1]) if start in orders]
    return runner(compiled, edges, inside.makers(makers),
                  stacking_call(compiled, inside.tensor_operands), inside.items)


def _without_tensors(makers: Sequence[Maker]) -> Specialized:
    return lambda _: [make(iter(())) for make in makers]


def _compiled(graph: torch.fx.Graph, args: Sequence[Any], weights: frozenset[int],
              settings: Mapping[str, Any]
              ) -> tuple[Executable | None, list[tuple[int, Axes | None]], list[Maker]]:
    """The program of a graph, the positions and layouts of its inputs, and what makes its results.

    ``None`` if it has no tensors to compute.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    results = next(n for n in graph.nodes if n.op == "output").args[0]
    named = {n.name: value for n, value in zip(placeholders, args, strict=True)}
    inputs = [(p, order_in_memory(value)) for p, value in enumerate(args)
              if isinstance(value, torch.Tensor) and p not in weights]
    tensors = [n for n in results if isinstance(n.meta.get("val"), torch.Tensor)]
    layouts = dict(zip(tensors, TracedSizes(placeholders, tensors).layouts(args), strict=True))
    program = TorchProgram(
        graph, {placeholders[p].name: args[p] for p in weights},
        {name: value for name, value in named.items() if not isinstance(value, torch.Tensor)},
        tuple(_port(placeholders[p].name, args[p], order) for p, order in inputs),
        tuple(_port(n.name, n.meta["val"], None) for n in tensors),
        tuple(n.name for n in tensors))
    importer = importer_of(program, inputs)
    orders = {n.name: order_of(layouts[n]) for n in tensors}
    module = importer.run({name: order for name, order in orders.items() if order is not None})
    makers = [maker_of(layouts[n], n.meta["val"].dtype) if n in layouts
              else number_maker(importer.value(n)) for n in results]
    return compile_model(module, **settings) if tensors else None, inputs, makers


def importer_of(program: TorchProgram, inputs: Sequence[tuple[int, Axes | None]]
                ) -> GraphImporter:
    """An importer with the inputs of a region, which lie in memory in the order of ``inputs``."""
    importer = GraphImporter(program)
    for port, (_, order) in zip(program.inputs, inputs, strict=True):
        var = Var(port.name, port.type)
        if order is None:
            importer.add_input(port.name, var)
        else:
            importer.add_transposed_input(port.name, var, inverse(order))
    return importer


def runner(compiled: Executable, inputs: Sequence[tuple[int, Axes | None]],
           makers: Sequence[Maker], call: Call | None = None, items: Sequence[int] = ()
           ) -> Specialized:
    """A function that calls a compiled module; ``inputs`` are the positions of its arguments, and
    the order of their axes in memory.

    ``call`` gives the results for the module's arrays. Arguments with a number of ``items`` are
    passed item by item.

    A tensor that arrives in another order is copied: which order its operators give, torch decides
    anew in each call, so its copy is listed and no reason to warn.
    """
    log = module_log(())
    counts = [items[p] if items else 0 for p, _ in inputs]
    starts = accumulate((count or 1 for count in counts), initial=0)
    names = [compiled.inputs[start].name for start, _ in zip(starts, counts, strict=False)]
    any_items = any(counts)
    ports = [(name, p, order) for name, (p, order) in zip(names, inputs, strict=True)]

    def array_for(name: str, value: Any, order: Axes | None) -> np.ndarray:
        array = array_of(value)
        array = array if order is None else array.transpose(order)
        if array.flags.c_contiguous:
            return array
        report(Fallback(
            f"input {name!r} of a region is copied before the call", "torch lays it out otherwise "
            "than when the region was compiled", "one pass over its memory in each such call, "
            "about 0.2 ms per MB", "call contiguous() on it in the model", listed_only=True), log)
        return np.ascontiguousarray(array)

    def run(args: Sequence[Any]) -> list[Any]:
        arrays = [array_for(name, args[p], order) for name, p, order in ports]
        if any_items:
            arrays = [part for array, count in zip(arrays, counts, strict=True)
                      for part in (array if count else (array,))]
        given = compiled(*arrays) if call is None else call(arrays)
        made = iter(given if isinstance(given, (tuple, list)) else (given,))
        return [make(made) for make in makers]

    return run


def order_in_memory(value: Any) -> Axes | None:
    """The order of a tensor's axes in memory; ``None`` for row-major tensors and for numbers."""
    if not isinstance(value, torch.Tensor) or value.is_contiguous():
        return None
    return memory_order(value.shape, value.stride())


def _port(name: str, value: torch.Tensor, order: Axes | None) -> Port:
    # Symbolic sizes of outputs may be anything here: type inference gives the program its own.
    sizes = tuple(s if isinstance(s, int) else 0 for s in value.shape)
    shape = sizes if order is None else tuple(sizes[axis] for axis in order)
    return Port(name, TensorType(shape, dtype_of(value.dtype, f"tensor {name!r}")))
