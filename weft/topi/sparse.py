"""Sparse tensors in coordinate (COO) format."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir.dtype import bool_, int64
from weft.tir import Buffer, PrimExpr, all_of, as_prim, const, maximum, select
from weft.tir.stmt import BufferStore, IfThenElse, Stmt, seq
from weft.topi.loop_nest import nest
from weft.topi.sizes import fixed_size
from weft.topi.transform import Dims

_ZERO = as_prim(0)


def sparse_to_dense(
    indices: te.Tensor, values: te.Tensor, default: te.Tensor, shape: Dims
) -> te.Tensor:
    """The dense tensor: ``default`` except at the indices."""

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        rows, numbers, other = inputs
        dense = outputs[0]

        def put(i: tuple[PrimExpr, ...]) -> Stmt:
            target = tuple(rows.load(i[0], as_prim(a)).astype(int64) for a in range(len(shape)))
            inside = [c for p, size in zip(target, shape, strict=True) for c in (p >= 0, p < size)]
            store = BufferStore(dense, numbers.load(*i), target)
            return IfThenElse(all_of(*inside), store) if inside else store

        clear = nest(dense.shape, lambda i: BufferStore(dense, other.load(), i))
        # Serial: of entries with equal indices the last one stays.
        return seq([clear, nest(numbers.shape, put)])

    return te.extern([shape], [indices, values, default], build, [values.dtype],
                     "sparse_to_dense")[0]


def fill_empty_rows(
    indices: te.Tensor, values: te.Tensor, default: te.Tensor, num_rows: int
) -> tuple[te.Tensor, ...]:
    """Indices and values row by row with empty rows filled; which rows were empty; the number.

    Quadratic: each row scans all indices.
    """
    rank = fixed_size(indices.shape[1], "an index tuple")
    most = indices.shape[0] + num_rows

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        rows, numbers, other = inputs
        new_rows, new_numbers, is_empty, count = outputs
        at = count.load(_ZERO)

        def emit(row: Sequence[PrimExpr], number: PrimExpr) -> list[Stmt]:
            stores = [BufferStore(new_rows, r, (at, as_prim(a))) for a, r in enumerate(row)]
            return [*stores, BufferStore(new_numbers, number, (at,)),
                    BufferStore(count, at + 1, (_ZERO,))]

        def look(r: tuple[PrimExpr, ...]) -> Stmt:
            def keep(i: tuple[PrimExpr, ...]) -> Stmt:
                own = [rows.load(i[0], as_prim(a)).astype(int64) for a in range(rank)]
                found = [*emit(own, numbers.load(*i)), BufferStore(is_empty, const(0, bool_), r)]
                return IfThenElse(own[0].equal(r[0]), seq(found))

            filled = seq(emit([r[0], *[_ZERO] * (rank - 1)], other.load()))
            return seq([BufferStore(is_empty, const(1, bool_), r), nest(numbers.shape, keep),
                        IfThenElse(is_empty.load(*r), filled)])

        return seq([BufferStore(count, _ZERO, (_ZERO,)), nest((as_prim(num_rows),), look)])

    return te.extern([(most, rank), (most,), (num_rows,), (1,)], [indices, values, default], build,
                     [int64, values.dtype, bool_, int64], "fill_empty_rows")


def sparse_reshape(
    indices: te.Tensor, old_shape: te.Tensor, new_shape: te.Tensor
) -> tuple[te.Tensor, te.Tensor]:
    """Coordinates converted from one shape to another by their row-major position."""
    old, given = ([shape[as_prim(a)].astype(int64)
                   for a in range(fixed_size(shape.shape[0], "a shape"))]
                  for shape in (old_shape, new_shape))
    total, known = const(1, int64), const(1, int64)
    for size in old:
        total = total * size
    for size in given:
        known = known * select(size.equal(-1), const(1, int64), size)
    new = [select(size.equal(-1), total // maximum(known, 1), size) for size in given]

    def index(row: PrimExpr, axis: PrimExpr) -> PrimExpr:
        rest = const(0, int64)
        for a, size in enumerate(old):
            rest = rest * size + indices[row, as_prim(a)].astype(int64)
        digit = const(0, int64)
        for a in reversed(range(len(new))):
            size = maximum(new[a], 1)
            digit = select(axis.equal(a), rest % size, digit)
            rest = rest // size
        return digit.astype(indices.dtype)

    def size_at(axis: PrimExpr) -> PrimExpr:
        value = const(0, int64)
        for a, size in enumerate(new):
            value = select(axis.equal(a), size, value)
        return value.astype(new_shape.dtype)

    rows = te.compute((indices.shape[0], len(new)), index, name="sparse_reshape")
    return rows, te.compute((len(new),), size_at, name="new_shape")
