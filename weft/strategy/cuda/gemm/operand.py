"""One factor of a product as a matrix in memory: its elements, and which of them are neighbours.

An operand has ``outer`` axes (rows of A, columns of B) and ``depth`` axes. Runs of neighbours are
found by arithmetic on the decoded indices, so they are found for convolutions as for matrices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from weft import te
from weft.ir import DType, int64
from weft.strategy.cuda.gemm.contraction import Axis, Contraction, product, unravel
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.te import loads_of, rewrite_body
from weft.tir import TRUE, Analyzer, Buffer, Call, Cast, IntImm, Ramp, Select, Var, all_of, const
from weft.tir.expr import BufferLoad, FloatImm, PrimExpr, ProducerLoad, if_then_else, int_value
from weft.tir.visitor import mentions, substitute, vars_of

BYTES = 16  # of the widest access of a thread
DEPTH, OUTER = "depth", "outer"


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """A factor as a matrix for each batch index.

    ``element`` is over the variables of ``batch``, ``outer`` and ``depth``, in the type ``dtype``
    in which it is stored: conversions to the type of the sums are left to the product. ``run``
    says along which index neighbours in memory lie (``None``: no runs), ``run_length`` how many
    elements a thread may move together.
    """

    batch: tuple[Axis, ...]
    outer: tuple[Axis, ...]
    depth: tuple[Axis, ...]
    element: PrimExpr
    run: str | None = None
    run_length: int = 1

    @property
    def dtype(self) -> DType:
        return self.element.dtype

    @property
    def sizes(self) -> tuple[PrimExpr, PrimExpr]:
        """The extents of the outer index and of K."""
        return product(self.outer), product(self.depth)

    @property
    def is_plain(self) -> bool:
        """Whether elements are loads, at most under a condition: a copy engine can fetch them."""
        return _guarded_load(self.element) is not None

    def at(self, z: PrimExpr, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        """The element at outer index ``i`` and depth ``k`` of matrix ``z``."""
        return substitute(self.element, self._values(z, i, k))

    def guarded(self, z: PrimExpr, i: PrimExpr, k: PrimExpr, analyzer: Analyzer) -> PrimExpr:
        """As ``at``; zero beyond the ends."""
        inside = analyzer.simplify(self.inside(i, k))
        return if_then_else(inside, self.at(z, i, k), const(0, self.dtype))

    def inside(self, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        rows, depth = self.sizes
        return all_of(i < rows, k < depth)

    def load_at(
        self, z: PrimExpr, i: PrimExpr, k: PrimExpr
    ) -> tuple[PrimExpr, ProducerLoad | BufferLoad]:
        """The condition and the load of an element of a plain operand."""
        found = _guarded_load(self.at(z, i, k))
        assert found is not None
        return found

    def _values(self, z: PrimExpr, i: PrimExpr, k: PrimExpr) -> dict[Var, PrimExpr]:
        return unravel(z, self.batch) | unravel(i, self.outer) | unravel(k, self.depth)

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
    depth = _ordered(c.depth, (a, b))
    return (_with_run(Operand(c.batch, c.rows, depth, a)),
            _with_run(Operand(c.batch, c.columns, depth, b)))


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


def _ordered(depth: tuple[Axis, ...], elements: Sequence[PrimExpr]) -> tuple[Axis, ...]:
    """K with the axis innermost along which an operand is contiguous; the first operand decides."""
    if len(depth) < 2 or any(_is_contiguous_as_written(e, depth) for e in elements[1:]):
        return depth
    for e in elements:
        for axis in depth:
            size = int_value(axis.extent)
            if size is not None and size >= 4 and _has_unit_stride(e, axis.var):
                return (*(x for x in depth if x is not axis), axis)
    return depth


def _is_contiguous_as_written(e: PrimExpr, depth: tuple[Axis, ...]) -> bool:
    """Whether a weight is contiguous along the whole of K in the order that the compute gives.

    Nothing is gained by it unless the other operand has no run of its own, which is the case for
    images in NCHW.
    """
    found = _guarded_load(e)
    last = depth[-1]
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
    flat: PrimExpr = const(0)
    for index, size in zip(load.indices, shape, strict=True):
        flat = flat * size + index
    return flat


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


def _with_run(operand: Operand) -> Operand:
    """The operand with its longest runs; along depth where both are as long."""
    best = operand
    for run in (DEPTH, OUTER):
        length = _run_length(operand, run)
        if length > best.run_length:
            best = dataclasses.replace(operand, run=run, run_length=length)
    return best


def _run_length(operand: Operand, run: str) -> int:
    """The neighbours along an index that one access may move, up to 16 bytes."""
    longest = BYTES // operand.dtype.itemsize if operand.dtype.bits >= 8 else 1
    loads = loads_of((operand.element,))
    if len(loads) != 1 or not operand.is_plain or loads[0].dtype is not operand.dtype:
        return 1
    while longest > 1 and not _is_run(operand, run, longest):
        longest //= 2
    return longest


def _is_run(operand: Operand, run: str, length: int) -> bool:
    """Whether elements ``q * length + 0..length - 1`` are aligned neighbours, all valid or none."""
    z, q, r, other = (Var(name, int64) for name in ("z", "q", "r", "other"))
    rows, depth = operand.sizes
    moving, still = (depth, rows) if run == DEPTH else (rows, depth)
    count = int_value(moving)
    if count is None or count % length:
        return False
    analyzer = Analyzer()
    analyzer.bind(r, 0, length)
    analyzer.bind(q, 0, count // length)
    analyzer.bind(other, 0, still)
    analyzer.bind(z, 0, product(operand.batch))
    index = q * length + r
    condition, load = operand.load_at(z, *((other, index) if run == DEPTH else (index, other)))
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


def mentions_any(e: PrimExpr, variables: Sequence[Var]) -> bool:
    return bool(vars_of(e) & set(variables))


@dataclass(frozen=True, slots=True, eq=False)
class StoredMatrix:
    """A whole parameter as a tensor map wants it: innermost axis first, strides in bytes.

    Axes are the index along ``run``, the other one, and the batch if there is one.
    """

    buffer: Buffer
    run: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @staticmethod
    def of(operand: Operand) -> StoredMatrix:
        """The matrix of an operand that ``strides_of`` accepts."""
        strides, load = strides_of(operand), operand.load_at(const(0), const(0), const(0))[1]
        if strides is None or not isinstance(load, BufferLoad) or operand.run is None:
            raise InternalError("an operand is no matrix in memory")
        batch = int_value(product(operand.batch)) or 1
        rows, depth = (int_value(s) or 0 for s in operand.sizes)
        inner, outer = (depth, rows) if operand.run == DEPTH else (rows, depth)
        shape = (inner, outer, batch) if batch > 1 else (inner, outer)
        return StoredMatrix(load.buffer, operand.run, shape, strides)


def strides_of(operand: Operand) -> tuple[int, ...] | None:
    """The strides in bytes of an operand that is a matrix, or a batch of them, from a buffer's
    first element on; ``None`` for any other.
    """
    if operand.run is None or not operand.is_plain or operand.run_length == 1:
        return None
    if None in [int_value(s) for s in (*operand.sizes, product(operand.batch))]:
        return None
    z, i, k = (Var(name, int64) for name in "zik")
    analyzer = Analyzer()
    rows, depth = operand.sizes
    for var, extent in ((z, product(operand.batch)), (i, rows), (k, depth)):
        analyzer.bind(var, 0, extent)
    condition, load = operand.load_at(z, i, k)
    flat = analyzer.simplify(flat_index(load))
    batch = int_value(product(operand.batch)) or 1
    steps = [_step(analyzer, flat, var) for var in (z, i, k)]
    if not is_always(analyzer.simplify(condition)) or None in steps:
        return None
    linear = z * (steps[0] or 0) + i * (steps[1] or 0) + k * (steps[2] or 0)
    if int_value(analyzer.simplify(flat - linear)) != 0:
        return None
    inner, outer = (steps[2], steps[1]) if operand.run == DEPTH else (steps[1], steps[2])
    strides = [(outer or 0), *([steps[0] or 0] if batch > 1 else [])]
    nbytes = tuple(s * operand.dtype.itemsize for s in strides)
    return nbytes if inner == 1 and all(n > 0 and n % BYTES == 0 for n in nbytes) else None


def _step(analyzer: Analyzer, flat: PrimExpr, var: Var) -> int | None:
    return int_value(analyzer.simplify(substitute(flat, {var: var + 1}) - flat))
