"""An operand of a GEMM in memory: its elements, and the index along which it is contiguous.

An operand has ``outer`` axes (M for A, N for B) and ``k`` axes. It is K-major or MN-major, as
CUTLASS says; this is found by arithmetic on the decoded indices, for convolutions as for matrices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from weft import te
from weft.ir import DType, int64
from weft.strategy.cuda.gemm.contraction import Axis, Contraction, extent_of, unravel
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.te import loads_of, rewrite_body
from weft.tir import TRUE, Analyzer, Buffer, Call, Cast, IntImm, Ramp, Select, Var, all_of, const
from weft.tir.expr import BufferLoad, FloatImm, PrimExpr, ProducerLoad, if_then_else, int_value
from weft.tir.row_major import ravel
from weft.tir.visitor import mentions, substitute

BYTES = 16  # of the widest access of a thread
K_MAJOR, MN_MAJOR = "k", "mn"  # the index along which neighbours in memory lie


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A matrix for each batch index.

    ``element`` is over the variables of ``batch``, ``outer`` and ``k``, in the type ``dtype`` in
    which it is stored: the GEMM converts it to the type of the accumulator. ``major``
    says along which index neighbours in memory lie (``None``: no runs), ``vector_length`` how many
    elements a thread may move together.
    """

    batch: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    k: tuple[Axis, ...]
    element: PrimExpr
    major: str | None = None
    vector_length: int = 1

    @property
    def dtype(self) -> DType:
        return self.element.dtype

    @property
    def sizes(self) -> tuple[PrimExpr, PrimExpr]:
        """The extents of the outer index and of K."""
        return extent_of(self.outer), extent_of(self.k)

    @property
    def is_plain(self) -> bool:
        """Whether elements are loads, at most under a condition: a copy engine can fetch them."""
        return _guarded_load(self.element) is not None

    def at(self, z: PrimExpr, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        """The element (i, k) of matrix ``z``."""
        return substitute(self.element, self._values(z, i, k))

    def guarded(self, z: PrimExpr, i: PrimExpr, k: PrimExpr, analyzer: Analyzer) -> PrimExpr:
        """As ``at``; zero beyond the ends."""
        inside = analyzer.simplify(self.inside(i, k))
        return if_then_else(inside, self.at(z, i, k), const(0, self.dtype))

    def inside(self, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        outer, depth = self.sizes
        return all_of(i < outer, k < depth)

    def load_at(
        self, z: PrimExpr, i: PrimExpr, k: PrimExpr
    ) -> tuple[PrimExpr, ProducerLoad | BufferLoad]:
        """The condition and the load of an element of a plain operand."""
        found = _guarded_load(self.at(z, i, k))
        assert found is not None
        return found

    def _values(self, z: PrimExpr, i: PrimExpr, k: PrimExpr) -> dict[Var, PrimExpr]:
        return unravel(z, self.batch) | unravel(i, self.outer) | unravel(k, self.k)

    def with_buffers(self, buffers: Callable[[te.Tensor], Buffer]) -> Operand:
        """The operand that reads buffers instead of tensors."""
        return dataclasses.replace(self, element=over_buffers(self.element, buffers))


def over_buffers(e: PrimExpr, buffers: Callable[[te.Tensor], Buffer]) -> PrimExpr:
    """``e`` with loads of buffers instead of tensors."""
    return rewrite_body((e,), {}, lambda x: BufferLoad(buffers(x.producer), x.indices))[0]


def operands_of(c: Contraction, *, narrow: bool) -> tuple[Operand, Operand]:
    """A and B with K ordered so that neighbours in memory are neighbours along K.

    ``narrow`` keeps the type in which elements are stored instead of that of the sums.
    """
    a, b = (_narrowed(e) if narrow else e for e in (c.a, c.b))
    axes = _ordered(c.k, (a, b))
    return (_with_major(Operand(c.batch, c.m, axes, a)),
            _with_major(Operand(c.batch, c.n, axes, b)))


def _narrowed(e: PrimExpr) -> PrimExpr:
    """The stored element of a converted one; a zero outside of the data stays zero."""
    if isinstance(e, Cast) and _widens(e.value.dtype, e.dtype):
        return _narrowed(e.value)
    if isinstance(e, Call) and e.name == "if_then_else":
        condition, value, other = e.args
        stored = _narrowed(value)
        if stored is not value and _is_zero(other):
            return if_then_else(condition, stored, const(0, stored.dtype))
    return e


def _widens(narrow: DType, wide: DType) -> bool:
    if narrow.is_float and wide.is_float:
        return narrow.bits < wide.bits
    return narrow.is_int and wide.is_int and narrow.bits < wide.bits


def _is_zero(e: PrimExpr) -> bool:
    return isinstance(e, IntImm | FloatImm) and e.value == 0


def _ordered(axes: tuple[Axis, ...], elements: Sequence[PrimExpr]) -> tuple[Axis, ...]:
    """K with the axis innermost along which an operand is contiguous; the first operand decides."""
    if len(axes) < 2 or any(_is_contiguous_as_written(e, axes) for e in elements[1:]):
        return axes
    for e in elements:
        for axis in axes:
            size = int_value(axis.extent)
            if size is not None and size >= 4 and _has_unit_stride(e, axis.var):
                return (*(x for x in axes if x is not axis), axis)
    return axes


def _is_contiguous_as_written(e: PrimExpr, axes: tuple[Axis, ...]) -> bool:
    """Whether a weight is contiguous along the whole of K in the order that the compute gives.

    It pays only where the other operand is contiguous along no index, as an image in NCHW is.
    """
    found = _guarded_load(e)
    last = axes[-1]
    return found is not None and _has_unit_stride(e, last.var) \
        and (int_value(last.extent) or 0) >= 4


def _has_unit_stride(e: PrimExpr, var: Var) -> bool:
    found = _guarded_load(e)
    if found is None or mentions(found[0], var):
        return False
    flat = flat_index(found[1])
    step = Analyzer().simplify(substitute(flat, {var: var + 1}) - flat)
    return int_value(step) == 1


def flat_index(load: ProducerLoad | BufferLoad) -> PrimExpr:
    """The row-major position of an element."""
    shape = load.producer.shape if isinstance(load, ProducerLoad) else load.buffer.shape
    return ravel(load.indices, shape)


def _guarded_load(e: PrimExpr) -> tuple[PrimExpr, ProducerLoad | BufferLoad] | None:
    """The condition and the load of ``load`` or ``if_then_else(condition, load, 0)``, nested."""
    conditions: list[PrimExpr] = []
    while True:
        if isinstance(e, ProducerLoad | BufferLoad):
            return all_of(*conditions), e
        if isinstance(e, Call) and e.name == "if_then_else":
            condition, value, other = e.args
        elif isinstance(e, Select):
            condition, value, other = e.condition, e.true_value, e.false_value
        else:
            return None
        if not _is_zero(other):
            return None
        conditions.append(_plain(condition))
        e = value


def _plain(condition: PrimExpr) -> PrimExpr:
    if isinstance(condition, Call) and condition.name == "likely":
        return condition.args[0]
    return condition


def _with_major(operand: Operand) -> Operand:
    """The operand with its longest vectors; K-major where both indices allow the same."""
    best = operand
    for major in (K_MAJOR, MN_MAJOR):
        length = _vector_length(operand, major)
        if length > best.vector_length:
            best = dataclasses.replace(operand, major=major, vector_length=length)
    return best


def _vector_length(operand: Operand, major: str) -> int:
    """The neighbours along an index that one access may move, up to 16 bytes."""
    longest = BYTES // operand.dtype.itemsize if operand.dtype.bits >= 8 else 1
    loads = loads_of((operand.element,))
    if len(loads) != 1 or not operand.is_plain or loads[0].dtype is not operand.dtype:
        return 1
    while longest > 1 and not _is_run(operand, major, longest):
        longest //= 2
    return longest


def _is_run(operand: Operand, major: str, length: int) -> bool:
    """Whether elements ``q * length + 0..length - 1`` are aligned neighbours, all valid or none."""
    z, q, r, other = (Var(name, int64) for name in ("z", "q", "r", "other"))
    outer, k = operand.sizes
    moving, still = (k, outer) if major == K_MAJOR else (outer, k)
    count = int_value(moving)
    if count is None or count % length:
        return False
    analyzer = Analyzer()
    analyzer.bind(r, 0, length)
    analyzer.bind(q, 0, count // length)
    analyzer.bind(other, 0, still)
    analyzer.bind(z, 0, extent_of(operand.batch))
    index = q * length + r
    condition, load = operand.load_at(z, *((other, index) if major == K_MAJOR else (index, other)))
    first = analyzer.simplify(flat_index(load) - r)
    if mentions(first, r) or mentions(analyzer.simplify(condition), r):
        return False
    return int_value(analyzer.simplify(first % length)) == 0


def as_vector(load: BufferLoad, lanes: int) -> BufferLoad | None:
    """The load of ``lanes`` neighbours from an element on; ``None`` if a row of memory ends first.

    The caller knows that the neighbours are consecutive in row-major order.
    """
    if lanes == 1:
        return load
    size = int_value(load.buffer.shape[-1]) if load.buffer.shape else None
    if size is None or size % lanes:
        return None
    *outer, last = load.indices
    return BufferLoad(load.buffer, (*outer, Ramp(last, const(1), lanes)))


def is_always(condition: PrimExpr) -> bool:
    return condition is TRUE or (isinstance(condition, IntImm) and bool(condition.value))


@dataclass(frozen=True, slots=True, eq=False)
class StoredMatrix:
    """A whole parameter as a tensor map wants it: innermost axis first, strides in bytes.

    Axes are the contiguous index, the other one, and the batch if there is one.
    """

    buffer: Buffer
    major: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @staticmethod
    def of(operand: Operand) -> StoredMatrix:
        """The matrix of an operand that ``strides_of`` accepts."""
        strides, load = strides_of(operand), operand.load_at(const(0), const(0), const(0))[1]
        if strides is None or not isinstance(load, BufferLoad) or operand.major is None:
            raise InternalError("an operand is no matrix in memory")
        batch = int_value(extent_of(operand.batch)) or 1
        mn, k = (int_value(s) or 0 for s in operand.sizes)
        inner, outer = (k, mn) if operand.major == K_MAJOR else (mn, k)
        shape = (inner, outer, batch) if batch > 1 else (inner, outer)
        return StoredMatrix(load.buffer, operand.major, shape, strides)


def strides_of(operand: Operand) -> tuple[int, ...] | None:
    """The strides in bytes of an operand that is a matrix, or a batch of them, from a buffer's
    first element on; ``None`` for any other.
    """
    if operand.major is None or not operand.is_plain or operand.vector_length == 1:
        return None
    if None in [int_value(s) for s in (*operand.sizes, extent_of(operand.batch))]:
        return None
    z, i, k = (Var(name, int64) for name in "zik")
    analyzer = Analyzer()
    outer, depth = operand.sizes
    for var, extent in ((z, extent_of(operand.batch)), (i, outer), (k, depth)):
        analyzer.bind(var, 0, extent)
    condition, load = operand.load_at(z, i, k)
    flat = analyzer.simplify(flat_index(load))
    batch = int_value(extent_of(operand.batch)) or 1
    steps = [_step(analyzer, flat, var) for var in (z, i, k)]
    if not is_always(analyzer.simplify(condition)) or None in steps:
        return None
    linear = z * (steps[0] or 0) + i * (steps[1] or 0) + k * (steps[2] or 0)
    if int_value(analyzer.simplify(flat - linear)) != 0:
        return None
    inner, outer = (steps[2], steps[1]) if operand.major == K_MAJOR else (steps[1], steps[2])
    strides = [(outer or 0), *([steps[0] or 0] if batch > 1 else [])]
    nbytes = tuple(s * operand.dtype.itemsize for s in strides)
    return nbytes if inner == 1 and all(n > 0 and n % BYTES == 0 for n in nbytes) else None


def _step(analyzer: Analyzer, flat: PrimExpr, var: Var) -> int | None:
    return int_value(analyzer.simplify(substitute(flat, {var: var + 1}) - flat))
