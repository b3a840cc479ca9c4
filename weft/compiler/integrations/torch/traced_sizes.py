"""The sizes and strides of a trace as functions of the arguments of a call.

TorchDynamo writes sizes as sympy expressions. Substituting numbers in them takes milliseconds per
call; here they become one Python function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.utils._sympy.printers import PythonPrinter

Layout = tuple[tuple[int, ...], tuple[int, ...]]


class TracedSizes:
    """The layouts of ``results`` and the values of symbols, for calls of a traced graph.

    A symbol has its value from the first size, stride or number among the arguments that is this
    symbol.
    """

    def __init__(self, placeholders: Sequence[torch.fx.Node], results: Sequence[torch.fx.Node]
                 ) -> None:
        self._sources: dict[str, str] = {}
        for position, node in enumerate(placeholders):
            for size, text in _sizes(node.meta.get("val"), f"args[{position}]"):
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    self._sources.setdefault(str(size.node.expr), text)
        layouts = [self._layout(node.meta["val"]) for node in results]
        self.layouts: Callable[[Sequence[Any]], tuple[Layout | None, ...]] = self._function(
            "".join(f"{layout}, " for layout in layouts))

    def values(self, symbols: Sequence[str]) -> Callable[[Sequence[Any]], tuple[int, ...]]:
        """A function that gives the values of symbols."""
        return self._function("".join(f"{symbol}, " for symbol in symbols))

    def _function(self, items: str) -> Any:
        lines = [f"    {name} = int({text})" for name, text in self._sources.items()]
        source = "\n".join(["def function(args):", *lines, f"    return ({items})"])
        made: dict[str, Any] = {}
        exec(compile(source, "<sizes of a traced graph>", "exec"), made)  # noqa: S102 - sizes alone
        return made["function"]

    def _layout(self, traced: Any) -> str:
        """The sizes and strides of a tensor; ``None`` if they depend on data."""
        if not isinstance(traced, torch.Tensor):
            return "None"
        both = [[self._formula(n) for n in numbers] for numbers in (traced.shape, traced.stride())]
        if any(formula is None for numbers in both for formula in numbers):
            return "None"
        return "".join(["(", *(f"({''.join(f'{n}, ' for n in numbers)}), " for numbers in both),
                        ")"])

    def _formula(self, size: Any) -> str | None:
        if not isinstance(size, torch.SymInt):
            return str(int(size))
        expr = size.node.expr
        if not {str(symbol) for symbol in expr.free_symbols} <= self._sources.keys():
            return None
        return str(PythonPrinter().doprint(expr))


def _sizes(traced: Any, text: str) -> Iterator[tuple[Any, str]]:
    """The numbers of an argument, each with the expression that reads it."""
    if not isinstance(traced, torch.Tensor):
        yield traced, text
        return
    for axis, size in enumerate(traced.shape):
        yield size, f"{text}.shape[{axis}]"
    for axis, stride in enumerate(traced.stride()):
        yield stride, f"{text}.stride({axis})"
