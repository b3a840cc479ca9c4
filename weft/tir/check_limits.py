"""The check of a loop program against what a kind of target supports."""

from __future__ import annotations

from collections.abc import Iterator

from weft.support.errors import LoweringError
from weft.tir.expr import int_value
from weft.tir.foreign_kernel import foreign_kernels_of
from weft.tir.func import PrimFunc
from weft.tir.limits import Limits
from weft.tir.stmt import Allocate, For, ForKind, Stmt
from weft.tir.visitor import post_order_stmts


def check_limits(func: PrimFunc, limits: Limits, kind: str) -> None:
    """Raise ``LoweringError`` if ``func`` uses what targets of ``kind`` do not support."""
    kernel = next(iter(foreign_kernels_of(func).values()), None)
    if kernel is not None and not limits.thread_axes:
        raise LoweringError(f"the CUDA kernel {kernel.entry} does not run on targets of kind "
                            f"{kind!r}", where=func.name,
                            help='launch it in a strategy for target="cuda"')
    for node in post_order_stmts(func.body):
        for problem, found, expected in _problems(node, limits):
            raise LoweringError(f"{problem} is not supported on targets of kind {kind!r}",
                                where=func.name, got=found, expected=expected)


def _problems(node: Stmt, limits: Limits) -> Iterator[tuple[str, str, str | None]]:
    if isinstance(node, For) and node.kind is ForKind.THREAD_BINDING \
            and node.thread_tag not in limits.thread_axes:
        yield (f"a loop bound to {node.thread_tag}", f"loop {node.loop_var.name}",
               ", ".join(limits.thread_axes) or "parallel, vectorized, unrolled or serial loops")
    if isinstance(node, For) and node.kind is ForKind.VECTORIZED and limits.max_lanes is not None:
        lanes = int_value(node.extent)
        if lanes is not None and lanes > limits.max_lanes:
            yield (f"a vector of {lanes} lanes", f"loop {node.loop_var.name}",
                   f"at most {limits.max_lanes} lanes")
    if isinstance(node, Allocate):
        buffer = node.buffer
        if buffer.scope not in limits.scopes:
            yield (f"{buffer.scope} memory", f"buffer {buffer.name}", ", ".join(limits.scopes))
        if limits.max_alignment is not None and buffer.alignment > limits.max_alignment:
            yield (f"an alignment of {buffer.alignment} bytes", f"buffer {buffer.name}",
                   f"at most {limits.max_alignment} bytes")
