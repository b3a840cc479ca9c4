"""GEMM of int8 on CUDA cores by ``dp4a``: a schedule of te primitives and ``tensorize``.

It serves GEMMs that tensor cores would mostly pad, and shows what the primitives do: tiles of both
operands in shared memory, accumulators in registers, four products of a thread per instruction.
"""

from __future__ import annotations

from weft import te
from weft.codegen.cuda.instructions import DP4A
from weft.strategy.analysis import computes_below
from weft.strategy.cuda.common.context import CudaContext
from weft.strategy.cuda.gemm.operand import K_MAJOR
from weft.strategy.cuda.gemm.plan import DP4A_THREADS, DotTile
from weft.strategy.cuda.gemm.problem import GemmProblem, reduction_below
from weft.strategy.implementation import compute_of
from weft.support.errors import InternalError
from weft.te import PlaceholderOp, loads_of
from weft.tir import Cast, Mul, ProducerLoad, Reduce, int_value

GROUP = 4  # products of one instruction


def why_not_dot_product(problem: GemmProblem) -> str | None:
    """Why ``dp4a`` cannot compute a GEMM; ``None`` if it can."""
    a, b = problem.stored
    if any(str(o.dtype) != "int8" for o in (a, b)) \
            or str(problem.contraction.accumulator) != "int32":
        return f"dp4a multiplies signed bytes into int32, not {a.dtype} by {b.dtype}"
    if a.major != K_MAJOR or b.major != K_MAJOR or len(problem.contraction.k) != 1:
        return "an operand is not contiguous along K"
    tile = DotTile()
    sizes = [int_value(s) for s in problem.contraction.sizes]
    if None in sizes or any((n or 0) % m for n, m in zip(
            sizes, (1, tile.size, tile.size, tile.bk), strict=True)):
        return f"the sizes are not multiples of {tile.size} and {tile.bk}"
    source = problem.contraction.op.body[0]
    if not isinstance(source, Reduce) or not _multiplies_loads(source):
        return "the operands are computed, not loaded"
    return None


def _multiplies_loads(reduce: Reduce) -> bool:
    product = reduce.source[0]
    return isinstance(product, Mul) and all(
        isinstance(f, Cast) and isinstance(f.value, ProducerLoad)
        and isinstance(f.value.producer.op, PlaceholderOp) for f in (product.a, product.b))


def schedule_dot_product(ctx: CudaContext, tile: DotTile) -> None:
    """Tiles of ``tile`` for the anchor; the operators after it run on the sums in registers."""
    s, op = ctx.schedule, reduction_below(ctx.anchor)
    if op is None:
        raise InternalError("a dot product of an anchor without a sum")
    operands = [load.producer for load in loads_of(op.body)]
    for stage in computes_below((ctx.output,)):
        if stage is not op and stage.output(0) is not ctx.output:
            s[stage.output(0)].compute_inline()
    total = op.output(0)
    if total is ctx.output:
        sums = s.cache_write(total, "local")
        assert isinstance(sums, te.Tensor)
    else:
        sums = total
        s[sums].set_scope("local")
    copies = [s.cache_read(x, "shared", [sums]) for x in dict.fromkeys(operands)]
    thread = _bind_result(s[ctx.output], compute_of(ctx.output), tile)
    s[sums].compute_at(s[ctx.output], thread)
    axes, (k,) = s[sums].axis, s[sums].reduce_axis
    outer, inner = s[sums].split(k, factor=tile.bk)
    groups, four = s[sums].split(inner, factor=GROUP)
    s[sums].reorder(outer, groups, *axes, four)
    for axis in axes[-2:]:
        s[sums].unroll(axis)
    s[sums].tensorize(four, DP4A)
    for copy in copies:
        _bind_copy(s[copy], compute_of(copy), s[sums], outer)


def _bind_result(stage: te.Stage, op: te.ComputeOp, tile: DotTile) -> te.IterVar:
    """Blocks of tiles; the elements of a thread are adjacent, so that they are one box."""
    *batch, row, column = op.axis
    block_row, in_row = stage.split(row, factor=tile.size)
    block_column, in_column = stage.split(column, factor=tile.size)
    thread_row, rows = stage.split(in_row, factor=tile.per_thread)
    thread_column, columns = stage.split(in_column, factor=tile.per_thread)
    stage.reorder(*batch, block_row, block_column, thread_row, thread_column, rows, columns)
    stage.bind(stage.fuse(*batch, block_row) if batch else block_row, "blockIdx.y")
    stage.bind(block_column, "blockIdx.x")
    stage.bind(thread_row, "threadIdx.y")
    stage.bind(thread_column, "threadIdx.x")
    stage.unroll(rows)
    stage.unroll(columns)
    return thread_column


def _bind_copy(stage: te.Stage, op: te.ComputeOp, at: te.Stage, axis: te.IterVar) -> None:
    """All threads copy a tile, four bytes at a time; padded rows are in different banks."""
    stage.compute_at(at, axis)
    *_, row, column = op.axis
    stage.storage_align(row, 64, GROUP)
    chunk, lane = stage.split(column, factor=GROUP)
    rows, thread_row = stage.split(row, factor=DP4A_THREADS)
    chunks, thread_column = stage.split(chunk, factor=DP4A_THREADS)
    stage.reorder(rows, chunks, thread_row, thread_column, lane)
    stage.bind(thread_row, "threadIdx.y")
    stage.bind(thread_column, "threadIdx.x")
    stage.vectorize(lane)
