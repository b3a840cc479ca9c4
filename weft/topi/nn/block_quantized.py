"""Elements of weights quantised in blocks: by NumPy, and in loops."""

from __future__ import annotations

import functools
from enum import StrEnum

import numpy as np

from weft import te
from weft.ir.dtype import DType, float32, int32
from weft.support.dataclass import dataclass
from weft.tir import Allocate, Buffer, BufferStore, For, ForKind, PrimExpr, Stmt, Var, const, seq
from weft.tir.expr import call, if_then_else, maximum, minimum
from weft.topi.loop_nest import nest
from weft.topi.nn.block_formats import RUN, BlockFormat
from weft.topi.nn.dense import accumulator_dtype


class Activations(StrEnum):
    """What products of blocks read of the data."""

    FLOAT32 = "float32"
    """The data themselves."""
    INT8 = "int8"
    """The data rounded to int8, in groups of 32 neighbours of a row with a scale each."""


GROUP = 32  # neighbours of a row of data that share a scale, where data are rounded to int8
LEVELS = 127
# Groups of no larger element are zeros: the inverse of their scale would overflow.
SMALLEST = 2.0 ** -100


@dataclass(frozen=True, slots=True)
class ArrayBlocks:
    """Blocks of NumPy, uint8 [..., nbytes]; its numbers have a last axis for the lanes of a run."""

    data: np.ndarray

    def byte(self, at: np.ndarray | int) -> np.ndarray:
        return self.data[..., np.atleast_1d(at)].astype(np.int32)

    def signed(self, at: np.ndarray | int) -> np.ndarray:
        return self.data[..., np.atleast_1d(at)].view(np.int8).astype(np.int32)

    def half(self, at: int) -> np.ndarray:
        return np.ascontiguousarray(self.data[..., at:at + 2]).view(np.float16).astype(np.float32)

    def single(self, at: int) -> np.ndarray:
        return np.ascontiguousarray(self.data[..., at:at + 4]).view(np.float32)

    def half_of(self, bits: np.ndarray) -> np.ndarray:
        return bits.astype(np.uint16).view(np.float16).astype(np.float32)

    def number(self, value: np.ndarray) -> np.ndarray:
        return value.astype(np.float32)

    def shift_right(self, value: np.ndarray, bits: np.ndarray) -> np.ndarray:
        return value >> bits

    def bit(self, at: int, lane: np.ndarray) -> np.ndarray:
        return self.byte(at + lane // 8) >> lane % 8 & 1

    def lookup(self, table: tuple[int, ...], index: np.ndarray) -> np.ndarray:
        return np.array(table, np.int32)[index]


@dataclass(frozen=True, slots=True)
class LoopBlocks:
    """One block in a loop program: the bytes of ``row`` of ``buffer`` from ``first`` on."""

    buffer: Buffer
    row: tuple[PrimExpr, ...]
    first: PrimExpr

    def _load(self, at: PrimExpr | int) -> PrimExpr:
        return self.buffer.load(*self.row, self.first + at)

    def byte(self, at: PrimExpr | int) -> PrimExpr:
        return self._load(at).astype(int32)

    def signed(self, at: PrimExpr | int) -> PrimExpr:
        return self._load(at).astype("int8").astype(int32)

    def half(self, at: int) -> PrimExpr:
        bits = self._load(at).astype("uint16") + self._load(at + 1).astype("uint16") * 256
        return te.reinterpret("float16", bits).astype(float32)

    def single(self, at: int) -> PrimExpr:
        bits = self._load(at).astype("uint32")
        for place in range(1, 4):
            bits = bits + self._load(at + place).astype("uint32") * 256 ** place
        return te.reinterpret("float32", bits)

    def half_of(self, bits: PrimExpr) -> PrimExpr:
        return te.reinterpret("float16", bits.astype("uint16")).astype(float32)

    def number(self, value: PrimExpr) -> PrimExpr:
        return value.astype(float32)

    def shift_right(self, value: PrimExpr, bits: PrimExpr) -> PrimExpr:
        return call(int32, "shift_right", value, bits.astype(int32))

    def bit(self, at: int, lane: PrimExpr) -> PrimExpr:
        bits = self.byte(at) + self.byte(at + 1) * 256
        return self.shift_right(bits, lane) % 2

    def lookup(self, table: tuple[int, ...], index: PrimExpr) -> PrimExpr:
        return call(int32, "table_lookup", index, *(const(n, int32) for n in table))


def dequantized(data: np.ndarray, form: BlockFormat) -> np.ndarray:
    """float32 [..., elements] of rows of blocks, uint8 [..., bytes of a row]."""
    *rows, size = data.shape
    count = size // form.nbytes
    blocks = ArrayBlocks(data.reshape(*rows, count, form.nbytes))
    lanes = np.arange(RUN)
    runs = [form.value(blocks, run, lanes) for run in range(form.runs)]
    return np.concatenate(runs, axis=-1, dtype=np.float32).reshape(
        *rows, count * form.elements)


@functools.lru_cache(maxsize=128)
def quant_range(form: BlockFormat) -> tuple[int, int] | None:
    """The smallest and the largest quant of a format; ``None`` if they do not fit bytes.

    Fields of bits are monotone, and a table is in order: equal bytes reach both ends.
    """
    bytes_ = np.repeat(np.arange(256, dtype=np.uint8)[:, None], form.nbytes, axis=1)
    quants = [form.quant(ArrayBlocks(bytes_), run, np.arange(RUN)) for run in range(form.runs)]
    if quants[0].dtype.kind != "i":
        return None
    low, high = int(np.min(quants)), int(np.max(quants))
    return (low, high) if low >= -128 and high - max(low, 0) <= 255 else None


def rounded_rows(data: np.ndarray) -> np.ndarray:
    """Rows rounded to int8 in groups of ``GROUP``, each times its float32 scale: float64."""
    depth = data.shape[-1]
    padding = [(0, 0)] * (data.ndim - 1) + [(0, -depth % GROUP)]
    groups = np.pad(data.astype(np.float32), padding).reshape(*data.shape[:-1], -1, GROUP)
    largest = np.abs(groups).max(axis=-1, keepdims=True, initial=0)
    is_zero = largest < np.float32(SMALLEST)
    inverse = np.where(is_zero, np.float32(0), np.float32(LEVELS) / np.where(is_zero, 1, largest))
    quants = np.rint(groups * inverse.astype(np.float32)).astype(np.float64)
    whole = quants * np.where(is_zero, np.float32(0), largest / np.float32(LEVELS))
    return whole.reshape(*data.shape[:-1], -1)[..., :depth]


def _rounded(data: te.Tensor) -> te.Tensor:
    """The same in loops, as float32."""
    *rows, depth = data.shape

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        def group(at: tuple[PrimExpr, ...]) -> Stmt:
            *row, number = at
            first = number * GROUP
            count = minimum(depth - first, const(GROUP))
            largest = Buffer("largest", (const(1),), float32)

            def x(k: PrimExpr) -> PrimExpr:
                return inputs[0].load(*row, first + k).astype(float32)

            def measure(k: tuple[PrimExpr, ...]) -> Stmt:
                return BufferStore(largest, maximum(largest.load(0), te.abs(x(*k))), (const(0),))

            def write(k: tuple[PrimExpr, ...]) -> Stmt:
                top = largest.load(0)
                rounded = te.round(x(*k) * (const(LEVELS, float32) / top)) * (top / LEVELS)
                value = if_then_else(top < SMALLEST, const(0, float32), rounded)
                return BufferStore(outputs[0], value, (*row, first + k[0]))

            return Allocate(largest, seq([
                BufferStore(largest, const(0, float32), (const(0),)),
                nest((count,), measure), nest((count,), write)]))

        return nest((*rows, (depth + (GROUP - 1)) // GROUP), group, independent=True, work=GROUP)

    return te.extern([data.shape], [data], build, [float32], "rounded_rows")[0]


def block_dequantize(data: te.Tensor, form: BlockFormat, dtype: DType) -> te.Tensor:
    """The elements of rows of blocks, by a loop over runs."""
    *rows, size = data.shape
    blocks = size // form.nbytes

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        def block(at: tuple[PrimExpr, ...]) -> Stmt:
            *row, number = at
            return store_block(form, LoopBlocks(inputs[0], tuple(row), number * form.nbytes),
                               outputs[0], tuple(row), number * form.elements)

        return nest((*rows, blocks), block, independent=True, work=form.elements)

    shape = (*rows, blocks * form.elements)
    return te.extern([shape], [data], build, [dtype], "block_dequantize")[0]


def store_block(form: BlockFormat, block: LoopBlocks, out: Buffer, row: tuple[PrimExpr, ...],
                first: PrimExpr, lanes: int = RUN) -> Stmt:
    """Store the elements of a block at ``out[*row, first:]``, run by run in vectors."""
    def run(number: int, start: int) -> Stmt:
        lane = Var("lane", first.dtype)
        value = form.value(block, number, lane + start).astype(out.dtype)
        place = (*row, first + (RUN * number + start) + lane)
        return For(lane, const(0), const(lanes), ForKind.VECTORIZED,
                   BufferStore(out, value, place))

    return seq([run(number, start) for number in range(form.runs)
                for start in range(0, RUN, lanes)])


def block_quantized_dense(data: te.Tensor, weight: te.Tensor, form: BlockFormat,
                          activations: Activations = Activations.FLOAT32) -> te.Tensor:
    """The product by loops over rows: each block is expanded into a buffer of its own."""
    *leading, depth = data.shape
    dtype, sums = data.dtype, accumulator_dtype(data.dtype)
    if activations == Activations.INT8 and quant_range(form) is not None:
        data = _rounded(data)

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, blocks = inputs

        def element(at: tuple[PrimExpr, ...]) -> Stmt:
            column, *row = at
            values = Buffer("values", (depth,), float32)
            total = Buffer("total", (const(1),), sums)
            here = (*row, column)

            def expand(i: tuple[PrimExpr, ...]) -> Stmt:
                block = LoopBlocks(blocks, (column,), i[0] * form.nbytes)
                return store_block(form, block, values, (), i[0] * form.elements)

            def add(k: tuple[PrimExpr, ...]) -> Stmt:
                product = source.load(*row, *k).astype(sums) * values.load(*k).astype(sums)
                return BufferStore(total, total.load(0) + product, (const(0),))

            return Allocate(values, Allocate(total, seq([
                BufferStore(total, const(0, sums), (const(0),)),
                nest((depth // form.elements,), expand), nest((depth,), add),
                BufferStore(outputs[0], total.load(0).astype(dtype), here)])))

        return nest((weight.shape[0], *leading), element, independent=True)

    return te.extern([(*leading, weight.shape[0])], [data, weight], build, [dtype],
                     "block_quantized_dense")[0]
