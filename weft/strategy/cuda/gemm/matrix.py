"""Operands that are matrices in memory, which the TMA unit can copy."""

from __future__ import annotations

from weft.ir import int64
from weft.strategy.cuda.gemm.contraction import product
from weft.strategy.cuda.gemm.operand import BYTES, DEPTH, Operand, flat_index, is_always
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.tir import Analyzer, Buffer, BufferLoad, PrimExpr, Var, const, int_value, substitute


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
