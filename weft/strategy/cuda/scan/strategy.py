"""Strategies of the scans: ``cumsum``, ``cumprod``, ``cummax``, ``cummin``, ``logcumsumexp``."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator

from weft import te
from weft.ir import Call, DType, Family, Op, TensorType, typical_size
from weft.op.transform.order import ScanAttrs
from weft.op.transform.running import RunningAttrs
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.cuda.scan.loops import TILE, ScanLoops
from weft.strategy.decision import Candidate, Decision, choose, decides
from weft.strategy.extents import is_fixed, size_of
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.tir import Buffer, PrimExpr, Stmt, const
from weft.topi.scan import COMBINES

# Tiles of a row from which on several blocks share it.
MIN_TILES_PER_CHUNK = 4


class ScanAlgorithm(enum.StrEnum):
    """The threads that scan one row."""

    COLUMNS = "columns"  # one thread for each row, adjacent threads in adjacent columns
    ROWS = "rows"  # one block for each row
    CHUNKS = "chunks"  # several blocks for each row, in three launches


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """``chunks`` is the number of blocks that share a row."""

    chunks: int = 1


@decides(Family.SCAN, target="cuda")
def decide_scan(call: Call, target: CudaTarget) -> Decision[ScanPlan]:
    """The algorithm of a scan by estimated seconds; symbolic sizes count as typical ones."""
    source = call.args[0].checked_type
    if not isinstance(source, TensorType):
        raise InternalError("a scan of something that is no tensor", got=str(source))
    shape = [typical_size(d) for d in source.shape]
    axis = _axis_of(call) % len(shape)
    fixed = all(isinstance(d, int) for d in source.shape)
    return _decide(shape, axis, source.dtype.itemsize, machine_model(target), fixed=fixed)


def _decide(shape: list[int], axis: int, itemsize: int, model: GpuModel, *,
            fixed: bool) -> Decision[ScanPlan]:
    size, rows = max(1, shape[axis]), max(1, math.prod(shape) // max(1, shape[axis]))
    moved = float(2 * rows * size * itemsize)
    # A thread that walks a row of its own waits for each load, and uses parts of sectors.
    strided = 4.0 if math.prod(shape[axis + 1:]) < 8 else 1.0
    step = model.dram_latency / 16  # loads do not wait for the sums
    in_flight = 16.0 * itemsize
    columns = model.launch_seconds + max(model.memory_seconds(moved * strided, rows, in_flight),
                                         size * step)
    tiles = -(-size // TILE)
    tile_seconds = model.cycles_seconds(10 * model.exchange_cycles) + model.dram_latency
    waves = -(-rows // (model.sms * 8))
    # A block that walks along an outer axis uses one element of each sector.
    sparse = min(8.0, float(math.prod(shape[axis + 1:])))
    by_rows = model.launch_seconds + max(model.memory_seconds(moved * sparse, rows * TILE / 4),
                                         tiles * waves * tile_seconds)
    candidates = [Candidate(ScanAlgorithm.COLUMNS, columns, ScanPlan()),
                  Candidate(ScanAlgorithm.ROWS, by_rows, ScanPlan())]
    chunks = min(tiles // MIN_TILES_PER_CHUNK, -(-2 * model.sms // rows))
    if fixed and chunks > 1:
        seconds = 3 * model.launch_seconds + max(
            model.memory_seconds(1.5 * moved * sparse, rows * chunks * TILE / 4),
            2 * -(-tiles // chunks) * tile_seconds)
        candidates.append(Candidate(ScanAlgorithm.CHUNKS, seconds, ScanPlan(chunks)))
    return choose(candidates)


def scan(x: te.Tensor, axis: int, dtype: DType, *, combine: str, exclusive: bool, reverse: bool,
         model: GpuModel) -> te.Tensor:
    """As ``topi.scan``, by blocks of threads."""
    identity = _identity(combine, dtype)
    decision = _decide([size_of(n) for n in x.shape], axis, x.dtype.itemsize, model,
                       fixed=all(map(is_fixed, x.shape)))

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        loops = ScanLoops(inputs[0], outputs[0], axis, COMBINES[combine], identity, exclusive,
                          reverse, decision.plan.chunks)
        return loops.by_columns() if decision.algorithm == ScanAlgorithm.COLUMNS \
            else loops.by_rows()

    return te.extern([x.shape], [x], build, [dtype], f"cum_{combine}")[0]


def _identity(combine: str, dtype: DType) -> PrimExpr:
    if combine in ("add", "mul"):
        return const(0 if combine == "add" else 1, dtype)
    if combine == "min":
        return te.max_value(dtype)
    return te.min_value(dtype)


def _axis_of(call: Call) -> int:
    attrs = call.attrs
    if not isinstance(attrs, ScanAttrs | RunningAttrs):
        raise InternalError("a scan has other attributes", got=type(attrs).__name__)
    return attrs.axis


@strategy(Family.SCAN, target="cuda", complete=True)
def _implementations(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    if not isinstance(call.op, Op):
        raise InternalError("a scan calls an operator", got=str(call.op))
    name, combine, model = call.op.name, call.op.traits.combine, machine_model(target)

    def compute(x: te.Tensor, attrs: ScanAttrs | RunningAttrs) -> te.Tensor:
        is_sum = isinstance(attrs, ScanAttrs)
        dtype = (attrs.dtype if isinstance(attrs, ScanAttrs) else None) or x.dtype
        return scan(x, attrs.axis % x.ndim, DType.of(dtype), combine=combine,
                    exclusive=is_sum and attrs.exclusive, reverse=attrs.reverse, model=model)

    decision = decide_scan(call, target)
    yield Implementation(f"{name}.cuda.{decision.algorithm}", lambda _: None, compute=compute,
                         seconds=decision.seconds)
