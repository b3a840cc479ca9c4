"""Strategies of ``sort`` and ``topk`` on CPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft import te
from weft.ir import AnyDim, Attrs, Call, DType, TensorType, int64
from weft.op.transform.order import SortAttrs, TopkAttrs
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.sort.lines import LineSort, Plan
from weft.strategy.cpu.sort.select import LineSelection
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CpuTarget
from weft.tir import Buffer, Stmt
from weft.topi.sizes import as_size
from weft.topi.sort import at_positions
from weft.topi.sort_network import lane_dtype
from weft.topi.upcast import converted

FEWEST_LANES = 4  # with fewer, digits are faster than comparators
# The features of architectures whose CPUs may lack vectors.
VECTORS = {"riscv64": "v", "wasm32": "simd128", "arm": "neon"}
SHORTEST = 64  # elements; shorter lines are sorted by counting ranks
SMALLEST_CHUNK = 4  # the logarithm of its rows
# Cycles that digits take for an element, wherever it goes, and operations on vectors in a cycle.
DIGITS_CYCLES, OPERATIONS = 22.0, 2.0
# A comparator of 64-bit integers is a comparison and two selections where there is no minimum.
WITHOUT_MINIMUM = 1.35
# Bytes of a line from which its merges wait for memory.
LARGEST_LINE = 1 << 24
# Elements whose first key is found at once; the more blocks for each element that is selected, the
# fewer elements besides them have to be sorted.
SELECTION_BLOCKS, BLOCKS_PER_ELEMENT = (16, 32, 64, 128), 3
SHORTEST_SELECTION = 512  # elements; the search of a threshold takes as long as reading so many
MOST_SELECTED = 128  # elements; inserting more into sorted ones takes longer than digits


def line_plan(source: TensorType, axis: int, target: CpuTarget) -> Plan | None:
    """The way of fewer operations; ``None`` where digits are faster, or sizes are unknown.

    The number of lines may be symbolic: they are then sorted one by one, or side by side as the
    last axis has them.
    """
    shape, kind = source.shape, lane_dtype(source.dtype)
    size, last, lanes = shape[axis], shape[-1], _lanes(target, kind)
    if (not isinstance(size, int) or not isinstance(last, int) or size < SHORTEST or 0 in shape
            or lanes < FEWEST_LANES or source.dtype.is_bool
            or any(isinstance(dim, AnyDim) for dim in shape)):
        return None
    near = _log2(target.l1_bytes // (lanes * kind.itemsize))
    if axis < len(shape) - 1:
        return Plan(lanes, near) if last >= lanes else None
    known = [dim for dim in shape if isinstance(dim, int)]
    lines = math.prod(known) // size
    largest = _log2(target.l2_bytes // 2 // (lanes * kind.itemsize))
    cost, chunk = min((lines * _chunk_operations(size, lanes, c), c)
                      for c in range(SMALLEST_CHUNK, largest + 1))
    is_near = (size - 1).bit_length() <= largest and len(known) == len(shape)
    beside = -(-lines // lanes) * _beside_operations(size, lanes)
    if is_near and beside <= cost:
        cost, plan = beside, Plan(lanes, near)
    else:
        plan = Plan(lanes, near, chunk)
    slowdown = WITHOUT_MINIMUM if kind is int64 and not target.has("avx512f") else 1.0
    cycles = cost * slowdown / OPERATIONS / (lines * size)
    is_faster = cycles <= DIGITS_CYCLES and size * kind.itemsize <= LARGEST_LINE
    return plan if is_faster else None


def _lanes(target: CpuTarget, kind: DType) -> int:
    """The elements of a vector; 1 without vectors."""
    feature = VECTORS.get(target.arch)
    return target.lanes(kind) if feature is None or target.has(feature) else 1


def _log2(size: int) -> int:
    return size.bit_length() - 1


def _stages(levels: int) -> int:
    """The stages of a network of ``2**levels`` elements."""
    return levels * (levels + 1) // 2


def _beside_operations(size: int, lanes: int) -> int:
    """Operations on vectors of as many lines as there are lanes, which are transposed twice."""
    return size * (_stages((size - 1).bit_length()) + 4 * _log2(lanes))


def _chunk_operations(size: int, lanes: int, chunk: int) -> int:
    """Of one line in chunks of ``2**chunk`` rows; stages within vectors take two operations."""
    width = _log2(lanes)
    rows = -(-size // (lanes << chunk)) << chunk
    levels = range(chunk - width + 1, (rows - 1).bit_length() + 1)
    return rows * (_stages(chunk) + 2 * width + sum(level + 2 * width + 3 for level in levels))


@strategy("sort", target="cpu", complete=True)
def sort(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Networks of vectors for lines of a fixed size, else digits or ranks."""
    source, attrs = call.args[0].checked_type, attrs_of(call, SortAttrs)
    if not isinstance(source, TensorType):
        raise InternalError("a sort of something that is no tensor", got=str(source))
    axis, is_ascend = attrs.axis % len(source.shape), attrs.is_ascend
    plan, seconds = line_plan(source, axis, target), roofline_seconds(call, target)
    if plan is None:
        yield Implementation("sort.cpu.digits", schedule_default, seconds=seconds)
        return

    def compute(x: te.Tensor, _: Attrs) -> te.Tensor:
        def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
            return LineSort(inputs[0], outputs[0], axis, is_ascend, plan).loops()

        return te.extern([x.shape], [x], build, [x.dtype], "sort_network")[0]

    yield Implementation("sort.cpu.network", schedule_default, compute=compute, seconds=seconds)


def selection_block(source: TensorType, attrs: TopkAttrs, target: CpuTarget) -> int | None:
    """The elements of a block; ``None`` where a line is too short, or all of it is sorted."""
    size, count, kind = source.shape[-1], attrs.k, lane_dtype(source.dtype)
    lanes = _lanes(target, kind)
    if (attrs.axis % len(source.shape) < len(source.shape) - 1 or source.dtype.is_bool
            or kind is int64 or lanes < FEWEST_LANES or not isinstance(size, int)
            or size < SHORTEST_SELECTION or not isinstance(count, int)
            or not 0 < count <= MOST_SELECTED):
        return None
    fitting = [block for block in SELECTION_BLOCKS
               if block % lanes == 0 and size // block >= BLOCKS_PER_ELEMENT * count]
    return max(fitting, default=None)


@strategy("topk", target="cpu", complete=True)
def topk(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The few first of long lines are selected."""
    source, attrs = call.args[0].checked_type, attrs_of(call, TopkAttrs)
    if not isinstance(source, TensorType):
        raise InternalError("a sort of something that is no tensor", got=str(source))
    block, seconds = selection_block(source, attrs, target), roofline_seconds(call, target)
    if block is None:
        yield Implementation("topk.cpu.order", schedule_default, seconds=seconds)
        return
    lanes = target.lanes(lane_dtype(source.dtype))

    def compute(x: te.Tensor, _: Attrs) -> tuple[te.Tensor, te.Tensor]:
        def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
            return LineSelection(inputs[0], outputs[0], attrs.is_ascend, lanes, block).loops()

        shape = (*x.shape[:-1], as_size(attrs.k))
        order = te.extern([shape], [x], build, [int64], "select_lines")[0]
        return at_positions(x, order, x.ndim - 1), converted(order, attrs.dtype)

    yield Implementation("topk.cpu.selection", schedule_default, compute=compute, seconds=seconds)
