"""Sizes that data determines: what torch.export calls unbacked symbols.

An operator that counts its results gives them a size ``u0``, a symbol of the weft program, which
later converters take as any other size.
"""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from weft import op
from weft.frontend.common.typed import tensor_type, typed
from weft.ir import AnyDim, Call, Expr, Span, SymDim, Tuple, post_order
from weft.transform.passes.bind_data_sizes import with_names


class DataSizes:
    """The sizes that data determines in one graph, each with a name."""

    def __init__(self, taken: Container[str] = ()) -> None:
        """``taken`` are the names of the symbols of the inputs."""
        self._names = (n for n in map("u{}".format, itertools.count()) if n not in taken)
        self._positions: dict[int, tuple[Expr, Expr]] = {}
        self._named: list[Expr] = []

    def positions(self, mask: Expr, span: Span) -> Expr:
        """The indices of the nonzero elements of ``mask``, (count, rank); the same for each call.

        So the results of two reads at one mask have one size.
        """
        if id(mask) not in self._positions:
            # The mask stays alive, so its id is not given again.
            self._positions[id(mask)] = mask, self.named(op.argwhere(mask, span=span))
        return self._positions[id(mask)][1]

    def named(self, call: Expr) -> Expr:
        """The result of an operator with one result, with a symbol for each size it counts."""
        found = typed(call)  # type: ignore[arg-type]
        return self._noted(with_names(found, self._names) if isinstance(found, Call) else found)

    def unbounded(self, call: Expr) -> Expr:
        """A tensor whose unknown sizes get symbols, though no operator counts them."""
        shape = tuple(SymDim.symbol(next(self._names)) if isinstance(size, AnyDim) else size
                      for size in tensor_type(call).shape)
        return self._noted(typed(op.annotation.match_cast(call, shape=shape, span=call.span)))

    def _noted(self, named: Expr) -> Expr:
        self._named.append(named)
        return named

    def kept(self, results: Sequence[Any]) -> list[Any]:
        """The results of the graph, the first of which needs all operators that sizes come from.

        A size alone, without elements, would not keep the operator that counts it.
        """
        found = [result for result in results if isinstance(result, Expr)]
        known = {id(node) for root in found for node in post_order(root)}
        missing = [named for named in self._named if id(named) not in known]
        if not missing or not found:
            return list(results)
        first = typed(op.annotation.barrier(found[0], Tuple(tuple(missing))))
        return [first if result is found[0] else result for result in results]


def has_data_sizes(graph: torch.fx.Graph) -> bool:
    """Whether a tensor of the graph has a size that data determines."""
    return any(isinstance(value, torch.Tensor) and free_unbacked_symbols(value)
               for node in graph.nodes for value in pytree.tree_leaves(node.meta.get("val")))
