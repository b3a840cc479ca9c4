"""Sizes that data determines, in a compiled program.

An operator that counts its results (``ir/dynamic.py``) writes them at the start of a buffer for the
largest result, and their number to memory. ``annotation.match_cast`` gives the number a symbol. The
main function reads it after the kernel has run, and later kernels take it as any other size. Memory
is planned for the bound of the symbol, so sizes of buffers must not shrink as the symbol grows.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from weft.compiler.program.program import BufferRef, CountedSize, Program
from weft.ir import Bounds, Call, Expr, Function, TensorType, name_of, size_of_dim
from weft.ir.shape import AnyDim, Dim, SymDim, substitute_dim
from weft.runtime.sizes import Size, names_in, parsed, with_names
from weft.strategy.size_vars import symbols_of
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import op_name, type_of

# The operator that names a size.
MATCH_CAST = "annotation.match_cast"


@dataclass(frozen=True, slots=True)
class CountedValue:
    """A tensor that step ``at`` fills in part; ``match_cast`` alone may use it.

    The size of its first axis is element ``which`` of ``counts``, at most ``bound``.
    """

    memory: BufferRef
    counts: BufferRef
    which: int
    at: int
    bound: Dim


def counted_values(bounds: Bounds, results: Sequence[BufferRef], counts: BufferRef, at: int
                   ) -> list[BufferRef | CountedValue]:
    """The results of step ``at``, which writes how much of them it fills to ``counts``.

    Raises ``UnsupportedModelError`` for a size of another axis than the first: the elements of
    the result are then not adjacent.
    """
    values: list[BufferRef | CountedValue] = list(results)
    for number, axis, which in bounds.counted:
        if axis != 0:
            raise UnsupportedModelError("an operator that counts along an inner axis",
                                        got=f"axis {axis}")
        values[number] = CountedValue(results[number], counts, which, at,
                                      bounds.types[number].shape[0])
    return values


class DataSizes:
    """The counted sizes of a program under construction; ``bound`` are those with a symbol."""

    def __init__(self) -> None:
        self.bound: list[CountedSize] = []

    def bound_value(self, cast: Call, value: object) -> BufferRef:
        """The memory of a value, with the symbols of a ``match_cast`` for its unknown sizes.

        Raises ``UnsupportedModelError`` for a size that no step counts.
        """
        symbols = dict(_bound_axes(cast))
        if isinstance(value, BufferRef) and not symbols:
            return value
        if not isinstance(value, CountedValue) or symbols.keys() != {0}:
            raise UnsupportedModelError("a size that only run time determines",
                                        where=cast.span, got=str(type_of(cast)))
        made = CountedSize(symbols[0], value.at, value.counts, value.which, value.bound)
        if made not in self.bound:
            self.bound.append(made)
        return value.memory

    def missing(self, function: Function) -> Iterator[str]:
        """The symbols of a kernel that no size is bound to yet; inputs may determine them."""
        known = {count.symbol for count in self.bound}
        return (symbol for symbol in symbols_of(function) if symbol not in known)


def bound_symbols(node: Expr) -> list[str]:
    """The symbols that a node binds to counted sizes."""
    is_cast = isinstance(node, Call) and op_name(node) == MATCH_CAST
    return [symbol for _, symbol in _bound_axes(node)] if is_cast else []


def _bound_axes(cast: Expr) -> Iterator[tuple[int, str]]:
    """The axes of a ``match_cast`` whose size was unknown, and their symbols."""
    before, after = (type_of(cast.args[0]), type_of(cast))  # type: ignore[attr-defined]
    if isinstance(before, TensorType) and isinstance(after, TensorType):
        for axis, (size, named) in enumerate(zip(before.shape, after.shape, strict=True)):
            if isinstance(size, AnyDim):
                yield axis, str(named)


def bounds_by_name(counts: Iterable[CountedSize]) -> dict[str, str]:
    """The bound of each counted symbol as a text over the symbols of the inputs."""
    found: dict[str, Dim] = {}
    for count in counts:
        found[count.symbol] = substitute_dim(count.bound, found)
    return {name_of(symbol): str(size_of_dim(bound)) for symbol, bound in found.items()}


def largest(size: Size, bounds: Mapping[str, str]) -> Size:
    """A size where each counted symbol has the value of its bound.

    Raises ``UnsupportedModelError`` for a size that may be smaller there than elsewhere.
    """
    if isinstance(size, int) or not names_in(size) & bounds.keys():
        return size
    if not _is_increasing(parsed(size).body, bounds.keys()):
        raise UnsupportedModelError("a buffer that shrinks as a counted size grows", got=size)
    return with_names(size, bounds)


def check_counts(program: Program) -> None:
    """Raise ``UnsupportedModelError`` for counts that the main function cannot read in time.

    The operator that counts must run always and once, before all kernels that take the size.
    """
    defined = {name_of(count.symbol): count.at for count in program.counts}
    known = {name_of(symbol) for port in program.inputs for dim in port.type.shape
             if isinstance(dim, SymDim) for symbol in dim.symbols()}
    if len(defined) < len(program.counts) or defined.keys() & known:
        raise UnsupportedModelError("two sizes of one name", got=", ".join(defined))
    for count in program.counts:
        if program.steps[count.at].path:
            raise UnsupportedModelError(
                "a branch or a loop with an operator that counts its results",
                got=program.kernels[program.steps[count.at].kernel].text)
    needed = [symbols_of(kernel.function) for kernel in program.kernels]
    for at, step in enumerate(program.steps):
        for name in map(name_of, needed[step.kernel]):
            if name not in known and defined.get(name, at) >= at:
                raise UnsupportedModelError(
                    f"the size {name} is used before data determines it",
                    got=program.kernels[step.kernel].text)


def _is_increasing(node: ast.expr, names: Collection[str]) -> bool:
    """Whether a size never shrinks as one of the symbols ``names`` grows; other sizes are >= 0."""
    match node:
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            return _is_increasing(left, names) and _is_increasing(right, names)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _is_increasing(left, names) and not _has(right, names)
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return _is_increasing(left, names) and not _has(right, names)
        case ast.Call(func=ast.Name(id="floordiv"), args=[left, right]):
            return _is_increasing(left, names) and not _has(right, names)
        case ast.Call(args=args):
            return all(_is_increasing(arg, names) for arg in args)
        case ast.UnaryOp():
            return not _has(node, names)
    return True


def _has(node: ast.expr, names: Collection[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
