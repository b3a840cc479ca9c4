"""Lays out the shared buffers of a block; buffers that are not alive together share bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.stmt import Stmt
from weft.tir.visitor import stmts_of

# Of every buffer: what bulk copies with the 128-byte swizzle need.
ALIGNMENT = 128


@dataclass(frozen=True, slots=True)
class SharedPlan:
    """The byte offset of each shared buffer, and the bytes of the block."""

    offsets: dict[Buffer, int]
    size: int


def plan_shared(body: Stmt) -> SharedPlan:
    """Stack allocation: buffers of disjoint scopes share bytes, nested ones do not.

    Raises ``LoweringError`` for a buffer of symbolic size.
    """
    offsets: dict[Buffer, int] = {}
    top = 0
    for buffer, start in _scopes(body, 0):
        offsets[buffer] = start
        top = max(top, start + _bytes(buffer))
    return SharedPlan(offsets, top)


def _scopes(node: Stmt, start: int) -> Iterator[tuple[Buffer, int]]:
    if isinstance(node, s.Allocate) and node.buffer.scope == "shared":
        start = -(-start // ALIGNMENT) * ALIGNMENT
        yield node.buffer, start
        yield from _scopes(node.body, start + _bytes(node.buffer))
        return
    for inner in stmts_of(node):
        yield from _scopes(inner, start)


def _bytes(buffer: Buffer) -> int:
    size = buffer.static_bytes
    if size is None:
        raise LoweringError(f"shared buffer {buffer.name} has a symbolic size", got=buffer.shape,
                            help="split the loops so that a block needs a constant tile")
    return size
