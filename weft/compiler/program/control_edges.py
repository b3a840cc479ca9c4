"""Control edges of a program: the steps that wait for others without reading what they write.

``annotation.barrier`` is an alias of its first operand, and effects need not read each other, so
buffers alone do not show these orders. Each step names the buffers whose writers it waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compiler.program.program import BufferRef
from weft.ir.expr import Expr, Function
from weft.ir.visitor import post_order
from weft.transform.analysis.graph import traits_of


class ControlEdges:
    """What the value of each expression waits for, and the last effect."""

    def __init__(self) -> None:
        self._after: dict[Expr, tuple[BufferRef, ...]] = {}
        self._last_effect: tuple[BufferRef, ...] = ()

    def alias(self, node: Expr, operands: Iterable[Expr], after: Iterable[BufferRef] = ()) -> None:
        """``node`` has the memory of ``operands``, and is available once ``after`` is written."""
        found = tuple(dict.fromkeys((*self._of(operands), *after)))
        if found:
            self._after[node] = found

    def before_step(self, function: Function, operands: Iterable[Expr],
                    writes: Sequence[BufferRef]) -> tuple[BufferRef, ...]:
        """The buffers that a kernel waits for, which computes ``writes`` from ``operands``."""
        after = self._of(operands)
        if any(traits_of(node).has_effect for node in post_order(function.body)):
            after = (*after, *self._last_effect)
            self._last_effect = tuple(writes)
        return tuple(dict.fromkeys(after))

    def _of(self, operands: Iterable[Expr]) -> tuple[BufferRef, ...]:
        if not self._after:
            return ()
        return tuple(ref for operand in operands for ref in self._after.get(operand, ()))
