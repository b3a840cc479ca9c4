"""Loops bound to the blocks and threads of a GPU."""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.stmt import ForKind, Stmt
from weft.tir.visitor import post_order_stmts

BLOCK_TAGS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")
THREAD_TAGS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
LAUNCH_TAGS = (*BLOCK_TAGS, *THREAD_TAGS)
WARP = 32
# Key of an ``AttrStmt`` which states that no thread accesses an element in its body that another
# thread writes there. It is for programs whose indices the analysis cannot separate, such as the
# pairs of a sorting network.
THREADS_APART = "threads_apart"


def is_bound(node: Stmt) -> bool:
    """Whether ``node`` is a loop over blocks or threads."""
    return isinstance(node, s.For) and node.kind is ForKind.THREAD_BINDING


def is_thread(node: Stmt) -> bool:
    """Whether ``node`` is a loop over the threads of a block."""
    return is_bound(node) and node.thread_tag in THREAD_TAGS  # type: ignore[attr-defined]


def is_block(node: Stmt) -> bool:
    """Whether ``node`` is a loop over the blocks of a grid."""
    return is_bound(node) and node.thread_tag in BLOCK_TAGS  # type: ignore[attr-defined]


def has_bound(node: Stmt) -> bool:
    """Whether there is a loop over blocks or threads in ``node``."""
    return any(map(is_bound, post_order_stmts(node)))


def bound_loop(var: Var, extent: PrimExpr | int, tag: str, body: Stmt) -> s.For:
    """A loop over ``range(extent)`` bound to ``tag``."""
    size = const(extent) if isinstance(extent, int) else extent
    return s.For(var, const(0), size, ForKind.THREAD_BINDING, body, tag)
