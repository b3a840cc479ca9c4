"""In-place computation: lets a kernel write its result over one of its inputs."""

from __future__ import annotations

import math

from weft.tir import visitor
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, Call, PrimExpr, access_lanes, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, For, IfThenElse, SeqStmt, Stmt, seq


def reuse_input(func: PrimFunc, source: Buffer, target: Buffer) -> PrimFunc | None:
    """``func`` reading ``target`` instead of ``source``; ``None`` if that would change results.

    The caller passes the memory with the values of ``source`` for both parameters. ``source``
    remains a parameter that is not accessed, so all accessed parameters still do not alias.

    This is sound if every element of ``target`` is written exactly once, and each element of
    ``source`` is read only to compute the element at the same index. A kernel writes every element
    of its result, so if it stores as many elements as there are, it writes each exactly once.

    ```
    b[i] = a[i] * c[i]       becomes      b[i] = b[i] * c[i]
    ```

    A kernel that copies the input and then replaces elements of the copy, as an update of a cache
    does, omits the copy. It may have symbolic sizes.
    """
    size = target.static_shape
    alike = source.dtype == target.dtype and source.shape == target.shape
    if not alike or source.strides is not None or target.strides is not None:
        return None
    updates = _without_copy(func.body, source, target)
    if updates is not None:
        return func.replace(body=updates)
    if size is None:
        return None
    if not _reads_only_where_written(func.body, source, target):
        return None
    if _count_stores(func.body, target) != math.prod(size):
        return None

    def renamed(e: PrimExpr) -> PrimExpr:
        if type(e) is BufferLoad and e.buffer is source:
            return BufferLoad(target, e.indices, e.predicate)
        return e

    memo: dict[PrimExpr, PrimExpr] = {}
    body = visitor.transform_stmt(func.body,
                                  fn_expr=lambda e: visitor.transform_expr(e, renamed, memo))
    return func.replace(body=body)


def _without_copy(body: Stmt, source: Buffer, target: Buffer) -> Stmt | None:
    """The statements after a copy of ``source`` to ``target``, changed to read ``target`` alone.

    ``None`` if the body is not of this form. Elements that the copy would not have written then
    hold values of ``source``; a kernel writes them before it reads them.
    """
    if not isinstance(body, SeqStmt) or not body.stmts or not _is_copy(
            body.stmts[0], source, target):
        return None
    rest = seq(body.stmts[1:])
    loads = (e for node in visitor.post_order_stmts(rest) for root in visitor.exprs_of(node)
             for e in visitor.post_order(root) if type(e) is BufferLoad)
    return None if any(e.buffer is source for e in loads) else rest


def _is_copy(stmt: Stmt, source: Buffer, target: Buffer) -> bool:
    """Whether ``stmt`` is a loop nest around ``target[i] = source[i]``."""
    while isinstance(stmt, For):
        stmt = stmt.body
    return (isinstance(stmt, BufferStore) and stmt.buffer is target and stmt.predicate is None
            and isinstance(stmt.value, BufferLoad) and stmt.value.buffer is source
            and stmt.value.indices == stmt.indices and stmt.value.predicate is None)


def _reads_only_where_written(body: Stmt, source: Buffer, target: Buffer) -> bool:
    """Whether ``target`` is never read, and ``source`` only in a store at the same index."""
    for node in visitor.post_order_stmts(body):
        stored = node.indices if isinstance(node, BufferStore) and node.buffer is target else None
        for e in (e for root in visitor.exprs_of(node) for e in visitor.post_order(root)):
            if type(e) is Call and e.name == "address_of":
                element = e.args[0]
                if type(element) is BufferLoad and element.buffer in (source, target):
                    return False
            if type(e) is not BufferLoad or e.buffer not in (source, target):
                continue
            is_same_element = e.indices == stored and e.predicate is None
            if e.buffer is target or not is_same_element:
                return False
    return True


def _count_stores(stmt: Stmt, target: Buffer) -> int | None:
    """The number of elements that stores to ``target`` write; ``None`` if it depends on data."""
    if isinstance(stmt, BufferStore):
        if stmt.buffer is not target:
            return 0
        lanes = access_lanes((*stmt.indices, stmt.value))
        return lanes if stmt.predicate is None else None
    total = 0
    for inside in visitor.stmts_of(stmt):
        count = _count_stores(inside, target)
        if count is None:
            return None
        total += count
    if total == 0:
        return 0
    if isinstance(stmt, For):
        extent = int_value(stmt.extent)
        return None if extent is None else total * extent
    return None if isinstance(stmt, IfThenElse) else total
