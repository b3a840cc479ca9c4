"""Strategies of ``sort``, ``argsort`` and ``topk``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft import te
from weft.ir import Attrs, Call, DType, Family, TensorType, int64, typical_size
from weft.op.transform.order import ArgsortAttrs, SortAttrs, TopkAttrs
from weft.strategy.cuda.default import schedule_computes
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.cuda.sort.loops import LARGEST_TILE, SortLoops
from weft.strategy.cuda.sort.tile import ABSENT
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.tir import Buffer, Stmt, as_prim, int_value
from weft.topi.sort import at_positions


def sorted_positions(x: te.Tensor, axis: int, *, is_ascend: bool, count: int | None = None
                     ) -> te.Tensor:
    """As ``topi.sort.argsort`` with int64 positions, for rows of a fixed size."""
    size = int_value(x.shape[axis]) or 0
    wanted = size if count is None else count

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        return SortLoops(inputs[0], outputs[0], axis, size, wanted, is_ascend).loops()

    shape = (*x.shape[:axis], as_prim(wanted), *x.shape[axis + 1:])
    return te.extern([shape], [x], build, [int64], "sort_rows")[0]


def _compute(x: te.Tensor, attrs: Attrs) -> te.Tensor | tuple[te.Tensor, ...]:
    assert isinstance(attrs, SortAttrs)
    axis = attrs.axis % x.ndim
    count = attrs.k if isinstance(attrs, TopkAttrs) and isinstance(attrs.k, int) else None
    order = sorted_positions(x, axis, is_ascend=attrs.is_ascend, count=count)
    if not isinstance(attrs, ArgsortAttrs):
        return at_positions(x, order, axis)
    positions = _as_dtype(order, attrs.dtype)
    return (at_positions(x, order, axis), positions) if isinstance(attrs, TopkAttrs) else positions


def _as_dtype(order: te.Tensor, dtype: DType | str) -> te.Tensor:
    kind = DType.of(dtype)
    return te.compute(order.shape, lambda *i: order[i].astype(kind), name="positions")


def sort_seconds(rows: int, size: int, itemsize: int, count: int, model: GpuModel) -> float:
    """Passes of the network between barriers, then launches that merge or compete."""
    levels = max(1, min(size, LARGEST_TILE) - 1).bit_length()
    tiles = rows * -(-size // LARGEST_TILE)
    network = model.cycles_seconds(levels * (levels + 1) / 2 * model.exchange_cycles)
    waves = max(1, tiles // (model.sms * 2))
    rounds = max(0, math.ceil(math.log2(max(1.0, size / LARGEST_TILE))))
    if 4 * count <= LARGEST_TILE:
        return (1 + rounds // 4) * (model.launch_seconds + network * waves)
    search = rounds * model.memory_seconds(rows * size * 32.0 * 11, rows * size,
                                           working_set=rows * size * (itemsize + 8))
    return (1 + rounds) * model.launch_seconds + network * waves + search


@strategy(Family.SORT, target="cuda", complete=True)
def _implementations(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    source, attrs, name = call.args[0].checked_type, call.attrs, getattr(call.op, "name", "")
    if not isinstance(source, TensorType) or not isinstance(attrs, SortAttrs):
        raise InternalError("a sort of something that is no tensor", got=str(source))
    size, count = source.shape[attrs.axis % len(source.shape)], getattr(attrs, "k", None)
    is_known = isinstance(size, int) and (count is None or isinstance(count, int))
    if not is_known or not 0 < size < ABSENT or count == 0:
        # The number of launches depends on the size: rows of a symbolic one are sorted by one
        # thread each.
        yield Implementation(f"{name}.cuda.thread_per_row", lambda _: None)
        return
    rows = math.prod(typical_size(d) for d in source.shape) // size
    seconds = sort_seconds(max(1, rows), size, source.dtype.itemsize, count or size,
                       machine_model(target))
    yield Implementation(f"{name}.cuda.bitonic", schedule_computes, compute=_compute,
                         seconds=seconds)
