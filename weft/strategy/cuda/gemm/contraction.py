"""A compute as a batched GEMM: ``C[z, i, j] = sum over k of A[z, i, k] * B[z, k, j]``.

Any sum of products is one: an axis of the result that only the first factor mentions belongs to
M, one that only the second mentions to N, one that both mention is a batch axis, and the reduction
axes together are K. Convolutions
are implicit GEMMs in this sense: the im2col matrix is the factor, whose elements are read from the
data through the decoded indices (Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning",
2014).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import te
from weft.ir import DType, float32, int64
from weft.strategy.analysis import inlined_body
from weft.support.dataclass import dataclass
from weft.te import rewrite_body
from weft.tir import (
    TRUE,
    Add,
    Analyzer,
    Call,
    Cast,
    IntImm,
    Mul,
    Reduce,
    Var,
    all_of,
    const,
    row_major,
)
from weft.tir.expr import FloatImm, FloorDiv, PrimExpr, ProducerLoad, if_then_else, int_value
from weft.tir.visitor import post_order, substitute, vars_of


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """An index variable that runs over ``[0, extent)``."""

    var: Var
    extent: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """``op`` as a GEMM; several axes of a kind form one index, the last of them fastest.

    ``a`` is over ``batch``, ``m`` and ``k``, ``b`` over ``batch``, ``k`` and ``n``; both in the
    type of the accumulator. ``where`` gives the axes of ``op``
    that were split in terms of the others.
    """

    op: te.ComputeOp
    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    a: PrimExpr
    b: PrimExpr
    where: Mapping[Var, PrimExpr]
    accumulator: DType

    @property
    def sizes(self) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]:
        """The number of matrices, M, N and K."""
        return (extent_of(self.batch), extent_of(self.m), extent_of(self.n), extent_of(self.k))

    def result_index(self, z: PrimExpr, i: PrimExpr, j: PrimExpr) -> dict[Var, PrimExpr]:
        """The axes of ``op`` at element (i, j) of matrix z."""
        values = unravel(z, self.batch) | unravel(i, self.m) | unravel(j, self.n)
        split = {var: substitute(value, values) for var, value in self.where.items()}
        return values | split


def extent_of(axes: Sequence[Axis]) -> PrimExpr:
    return row_major.element_count(axis.extent for axis in axes)


def unravel(index: PrimExpr, axes: Sequence[Axis]) -> dict[Var, PrimExpr]:
    """The axes at position ``index`` of their row-major order."""
    indices = row_major.unravel(index, [axis.extent for axis in axes])
    return {axis.var: index for axis, index in zip(axes, indices, strict=True)}


def contraction_of(op: te.ComputeOp) -> Contraction | str:
    """``op`` as a GEMM, or why it is none."""
    (body,) = inlined_body(op, _is_inlined) if len(op.body) == 1 else (None,)
    if not isinstance(body, Reduce) or not _is_sum(body):
        return "it is not a sum"
    source, condition = _unguarded(body.source[0])
    factors = _factors(source)
    if factors is None:
        return "the summands are not products"
    if any(int_value(axis.min) != 0 for axis in op.reduce_axis):
        return "a reduction axis does not start at 0"
    a, b = factors
    data, k = set(op.axis), tuple(Axis(x.var, x.extent) for x in op.reduce_axis)
    used = set().union(*(vars_of(axis.extent) for axis in k))
    if used & {axis.var for axis in (*data, *op.reduce_axis)}:
        return "the extent of a reduction axis depends on another axis"
    if a.dtype.is_narrow_float:  # sums are rounded once, at the end
        a, b = a.astype(float32), b.astype(float32)
    a = _guarded(a, all_of(body.condition, condition))
    return _classified(op, a, b, k)


def _is_inlined(op: te.ComputeOp) -> bool:
    """Whether an element of a producer is computed where it is read: it costs no reduction."""
    return len(op.body) == 1 and not isinstance(op.body[0], Reduce)


def _is_sum(reduce: Reduce) -> bool:
    combiner = reduce.combiner
    if len(combiner.result) != 1 or not isinstance(combiner.result[0], Add):
        return False
    result = combiner.result[0]
    return {result.a, result.b} == {combiner.lhs[0], combiner.rhs[0]}


def _unguarded(source: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The summand and the condition under which it counts."""
    if isinstance(source, Call) and source.name == "if_then_else":
        condition, value, other = source.args
        if isinstance(other, IntImm | FloatImm) and other.value == 0:
            return value, condition
    return source, TRUE


def _factors(source: PrimExpr) -> tuple[PrimExpr, PrimExpr] | None:
    while isinstance(source, Cast) and isinstance(source.value, Mul) \
            and _is_exact(source.value.dtype, source.dtype):
        a, b = source.value.a, source.value.b
        return a.astype(source.dtype), b.astype(source.dtype)
    return (source.a, source.b) if isinstance(source, Mul) else None


def _is_exact(narrow: DType, wide: DType) -> bool:
    """Whether a product in ``narrow`` has the value of the product in ``wide``: never for floats.

    Integer arithmetic modulo 2**n is the same in both.
    """
    return narrow.is_int and wide.is_int and wide.bits <= narrow.bits


def _guarded(factor: PrimExpr, condition: PrimExpr) -> PrimExpr:
    return if_then_else(condition, factor, const(0, factor.dtype))


def _classified(
    op: te.ComputeOp, a: PrimExpr, b: PrimExpr, k: tuple[Axis, ...]
) -> Contraction | str:
    groups: dict[str, list[Axis]] = {"batch": [], "m": [], "n": []}
    where: dict[Var, PrimExpr] = {}
    for axis in op.axis:
        kind = _kind(axis.var, a, b)
        if kind != "batch":
            groups[kind].append(Axis(axis.var, axis.extent))
            continue
        divisor = _group_size(axis, a, b)
        if divisor is None:
            groups["batch"].append(Axis(axis.var, axis.extent))
            continue
        # A grouped convolution: output channel = group * size + channel in the group.
        size, in_a = divisor
        group, inner = Var(f"{axis.name}.group", int64), Var(f"{axis.name}.inner", int64)
        where[axis.var] = group * size + inner
        groups["batch"].append(Axis(group, const((int_value(axis.extent) or 0) // size)))
        groups["n" if in_a else "m"].append(Axis(inner, const(size)))
        a, b = (_split(e, axis.var, group, inner, size) for e in (a, b))
    if not groups["m"] and not groups["n"]:
        return "no axis of the result belongs to one factor alone"
    return _oriented(Contraction(
        op, tuple(groups["batch"]), tuple(groups["m"]), tuple(groups["n"]), k, a, b,
        where, a.dtype))


def _kind(var: Var, a: PrimExpr, b: PrimExpr) -> str:
    in_a, in_b = var in vars_of(a), var in vars_of(b)
    if in_a == in_b:
        return "batch"
    return "m" if in_a else "n"


def _group_size(axis: te.IterVar, a: PrimExpr, b: PrimExpr) -> tuple[int, bool] | None:
    """The divisor if one factor reads ``axis`` only as ``axis // divisor``, and whether it is a."""
    extent = int_value(axis.extent)
    for factor, is_a in ((a, True), (b, False)):
        quotients = {e for e in post_order(factor)
                     if isinstance(e, FloorDiv) and e.a is axis.var and int_value(e.b)}
        sizes = {int_value(e.b) for e in quotients}
        if len(sizes) != 1 or extent is None:
            continue
        size = sizes.pop() or 1
        hidden = Var("group", int64)
        rest = substitute_exprs(factor, dict.fromkeys(quotients, hidden))
        if axis.var not in vars_of(rest) and extent % size == 0:
            return size, is_a
    return None


def _split(e: PrimExpr, var: Var, group: Var, inner: Var, size: int) -> PrimExpr:
    analyzer = Analyzer()
    analyzer.bind(inner, 0, size)
    analyzer.bind(group, 0, None)
    whole = substitute(e, {var: group * size + inner})

    def simplified(load: ProducerLoad) -> PrimExpr:
        return ProducerLoad(load.producer, tuple(analyzer.simplify(i) for i in load.indices))

    return rewrite_body((whole,), {}, simplified)[0]


def substitute_exprs(e: PrimExpr, values: Mapping[PrimExpr, PrimExpr]) -> PrimExpr:
    """``e`` with whole subexpressions replaced."""
    return rewrite_body((e,), values)[0]  # type: ignore[arg-type]


def _oriented(c: Contraction) -> Contraction:
    """The GEMM with the innermost axis of the result in N, so that a row of C is contiguous."""
    moving = [axis.var for axis in c.op.axis if int_value(axis.extent) != 1]
    of_m = {axis.var for axis in c.m}
    inner = {var for value in c.where.values() for var in vars_of(value)} & of_m
    last = moving[-1] if moving else None
    in_m = last in of_m or (last in c.where and bool(vars_of(c.where[last]) & inner))
    if not in_m and c.n:
        return c
    if not in_m and not c.n and last not in of_m:
        return c
    return Contraction(c.op, c.batch, c.n, c.m, c.k, c.b, c.a, c.where, c.accumulator)
