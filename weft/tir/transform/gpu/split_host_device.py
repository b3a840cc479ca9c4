"""Splits a program into its launches: nests of block and thread loops, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.transform.gpu.thread_axes import BLOCK_TAGS, THREAD_TAGS, is_bound
from weft.tir.visitor import stmts_of, substitute

Extents = tuple[PrimExpr, PrimExpr, PrimExpr]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch.

    ``axes`` are the variables of the bound loops by tag, ``grid`` and ``block`` the extents, x
    first; ``body`` is what one thread runs.
    """

    axes: dict[str, Var]
    grid: Extents
    block: tuple[int, int, int]
    body: Stmt

    @property
    def threads(self) -> int:
        """The threads of a block."""
        x, y, z = self.block
        return x * y * z


def launches_of(func: PrimFunc) -> tuple[Launch, ...]:
    """The launches of a function whose statements outside of bound loops only allocate memory.

    Raises ``LoweringError`` for other statements there, and for a number of threads that is not a
    constant.
    """
    return tuple(_launches(func, func.body, ()))


def _launches(func: PrimFunc, node: Stmt, around: tuple[s.Allocate, ...]) -> Iterator[Launch]:
    if is_bound(node):
        yield _launch(func, node)
    elif isinstance(node, s.SeqStmt | s.Allocate | s.AttrStmt):
        for inner in stmts_of(node):
            yield from _launches(func, inner, around)
    elif isinstance(node, s.For | s.IfThenElse | s.LetStmt | s.BufferStore | s.Evaluate):
        raise LoweringError("a statement outside of the blocks of a GPU kernel", where=func.name,
                            got=type(node).__name__,
                            help="bind a loop of each stage to blockIdx.x or threadIdx.x")


def _launch(func: PrimFunc, node: Stmt) -> Launch:
    axes: dict[str, Var] = {}
    extents: dict[str, PrimExpr] = {}
    starts: dict[Var, PrimExpr] = {}
    shared: list[s.Allocate] = []
    while is_bound(node) or isinstance(node, s.Allocate):
        if isinstance(node, s.Allocate):
            if not _has_outer_bound(node.body):
                break
            shared.append(node)
        elif isinstance(node, s.For):
            tag = node.thread_tag or ""
            if tag in axes:
                raise LoweringError(f"two nested loops bound to {tag}", where=func.name)
            axes[tag], extents[tag] = node.loop_var, node.extent
            if int_value(node.min) != 0:
                starts[node.loop_var] = node.loop_var + node.min
        node = node.body  # type: ignore[attr-defined]
    body = substitute(node, starts) if starts else node
    for allocation in reversed(shared):
        body = s.Allocate(allocation.buffer, body)
    block = []
    for tag in THREAD_TAGS:
        count = int_value(extents.get(tag, const(1)))
        if count is None:
            raise LoweringError(f"the number of threads {tag} is not a constant", where=func.name,
                                got=extents[tag], help="split the loop by a constant factor")
        block.append(count)
    x, y, z = (extents.get(tag, const(1)) for tag in BLOCK_TAGS)
    return Launch(axes, (x, y, z), (block[0], block[1], block[2]), body)


def _has_outer_bound(node: Stmt) -> bool:
    """Whether the next statement, inside allocations alone, is a bound loop."""
    while isinstance(node, s.Allocate):
        node = node.body
    return is_bound(node)
