"""Nonzero positions and unique values, whose number depends on data.

Results are written at the start of a buffer for the largest possible result, together with their
number (see ``weft.ir.dynamic``).
"""

from __future__ import annotations

from weft import te
from weft.ir.dtype import bool_, int64
from weft.tir import Buffer, PrimExpr, as_prim, const, if_then_else
from weft.tir.row_major import element_count
from weft.tir.stmt import BufferStore, IfThenElse, Stmt, seq
from weft.topi.loop_nest import nest
from weft.topi.radix_sort import sorted_positions
from weft.topi.sort import before

_ZERO = as_prim(0)


def argwhere(x: te.Tensor) -> tuple[te.Tensor, ...]:
    """The indices of nonzero elements, as rows in row-major order, and their number."""
    total = element_count(x.shape)

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, (found, count) = inputs[0], outputs
        row = count.load(_ZERO)

        def look(i: tuple[PrimExpr, ...]) -> Stmt:
            write = [BufferStore(found, p, (row, as_prim(axis))) for axis, p in enumerate(i)]
            # Serial: the row of a hit is the number of hits before it.
            return IfThenElse(_is_set(source.load(*i)), seq([*write, _add_one(count, _ZERO)]))

        return seq([_clear(count), nest(source.shape, look)])

    return te.extern([(total, x.ndim), (1,)], [x], build, [int64, int64], "argwhere")


def unique(x: te.Tensor, *, is_sorted: bool) -> tuple[te.Tensor, ...]:
    """The unique values of a 1-D tensor: values, first positions, inverse, counts; their number.

    Values ascend or, without ``is_sorted``, keep the order of their first positions. All NaNs are
    one value, the last. The inverse maps each position to the index of its value.
    """
    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, (values, first, inverse, counts, number) = inputs[0], outputs
        group = number.load(_ZERO)

        def coord(rank: PrimExpr, position: PrimExpr) -> Stmt:
            """Group sorted positions; the first of a group is its first position."""
            value = source.load(position)
            opened = seq([BufferStore(values, value, (group,)),
                          BufferStore(first, position, (group,)),
                          BufferStore(counts, const(0), (group,)), _add_one(number, _ZERO)])
            # The first rank has no group before it to read.
            is_new = if_then_else(rank.equal(0), const(1, bool_),
                                  before(values.load(group - 1), value))
            return seq([IfThenElse(is_new, opened),
                        BufferStore(inverse, group - 1, (position,)),
                        _add_one(counts, group - 1)])

        size = source.shape[0]
        ordered = sorted_positions(size, size, source.load, coord)
        return seq([_clear(number), ordered])

    shapes = [x.shape, x.shape, x.shape, x.shape, (1,)]
    dtypes = [x.dtype, int64, int64, int64, int64]
    found = te.extern(shapes, [x], build, dtypes, "unique")
    return found if is_sorted else _by_appearance(found)


def _by_appearance(found: tuple[te.Tensor, ...]) -> tuple[te.Tensor, ...]:
    """The result of ``unique`` with values in order of first appearance."""
    size, dtype = found[0].shape[0], found[0].dtype

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        values, first, inverse, counts, _ = inputs
        new_values, new_first, new_inverse, new_counts, new_number = outputs
        group = new_number.load(_ZERO)

        def look(i: tuple[PrimExpr, ...]) -> Stmt:
            """The first position of a value gets the next index.

            Later positions read that index at the first position.
            """
            position, old = i[0], inverse.load(*i)
            opened = seq([BufferStore(new_values, values.load(old), (group,)),
                          BufferStore(new_first, position, (group,)),
                          BufferStore(new_counts, counts.load(old), (group,)),
                          BufferStore(new_inverse, group, i), _add_one(new_number, _ZERO)])
            known = BufferStore(new_inverse, new_inverse.load(first.load(old)), i)
            return IfThenElse(first.load(old).equal(position), opened, known)

        return seq([_clear(new_number), nest((size,), look)])

    shapes = [t.shape for t in found]
    return te.extern(shapes, list(found), build, [dtype, int64, int64, int64, int64],
                     "unique_unsorted")


def _is_set(value: PrimExpr) -> PrimExpr:
    return value if value.dtype.is_bool else value.not_equal(const(0, value.dtype))


def _clear(counter: Buffer) -> Stmt:
    return BufferStore(counter, const(0), (_ZERO,))


def _add_one(counter: Buffer, at: PrimExpr) -> Stmt:
    return BufferStore(counter, counter.load(at) + 1, (at,))
