"""The GEMM that a kernel computes, found in its tensor expressions."""

from __future__ import annotations

from weft import te
from weft.ir import Call, DType, Expr, Op, SymDim, TensorType, TupleType
from weft.strategy.cuda.gemm.contraction import Contraction, contraction_of
from weft.strategy.cuda.gemm.operand import Operand, operands_of
from weft.strategy.cuda.gemm.plan import GemmShape
from weft.strategy.extents import size_of
from weft.strategy.size_vars import SizeVars
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.te import input_tensors
from weft.tir import Reduce


@dataclass(frozen=True, slots=True, eq=False)
class GemmProblem:
    """A contraction with its operands: as they are stored, and in the type of the accumulator."""

    contraction: Contraction
    stored: tuple[Operand, Operand]
    converted: tuple[Operand, Operand]

    @property
    def shape(self) -> GemmShape:
        """The sizes that estimates take; symbols count as their typical sizes."""
        batch, m, n, k = (max(1, size_of(s)) for s in self.contraction.sizes)
        a, b = self.stored
        return GemmShape(batch, m, n, k, a.dtype.itemsize, b.dtype.itemsize,
                            min(a.dtype.itemsize, self.contraction.accumulator.itemsize))


def reduction_below(tensor: te.Tensor) -> te.ComputeOp | None:
    """The reduction whose sums ``tensor`` holds, perhaps converted; ``None`` if there is none."""
    op = tensor.op
    while isinstance(op, te.ComputeOp):
        if len(op.body) == 1 and isinstance(op.body[0], Reduce):
            return op
        read = [t for t in input_tensors(op) if isinstance(t.op, te.ComputeOp)]
        sums = [t for t in read if _holds_reduction(t)]
        if len(sums) != 1:
            return None
        op = sums[0].op
    return None


def _holds_reduction(tensor: te.Tensor) -> bool:
    pending, seen = [tensor.op], set[int]()
    while pending:
        op = pending.pop()
        if id(op) in seen or not isinstance(op, te.ComputeOp):
            continue
        seen.add(id(op))
        if any(isinstance(body, Reduce) for body in op.body):
            return True
        pending.extend(t.op for t in input_tensors(op))
    return False


def problem_of(tensor: te.Tensor) -> GemmProblem | str:
    """The GEMM whose result ``tensor`` is, or why there is none."""
    op = reduction_below(tensor)
    if op is None:
        return "the compute has no single sum"
    contraction = contraction_of(op)
    if isinstance(contraction, str):
        return contraction
    return GemmProblem(contraction, operands_of(contraction, narrow=True),
                          operands_of(contraction, narrow=False))


def problem_of_call(call: Call) -> GemmProblem | str:
    """The GEMM that a typed call computes on its own."""
    symbols = sorted({s for x in (call, *call.args) for s in _symbols(x.checked_type)})
    sizes = SizeVars(symbols)
    try:
        arguments = [_argument(x, f"p{n}", sizes) for n, x in enumerate(call.args)]
        if not isinstance(call.op, Op) or call.op.compute is None:
            return "the operator has no compute"
        result = call.op.compute(*arguments, sizes.attrs(call.attrs))
    except LoweringError as error:
        return str(error).splitlines()[0]
    return problem_of(result) if isinstance(result, te.Tensor) else "several results"


def _argument(x: Expr, name: str, sizes: SizeVars) -> object:
    """An operand; one that the kernel converts as it loads it is converted here too."""
    inner = x.args[0] if isinstance(x, Call) and getattr(x.op, "name", "") == "cast" else None
    if inner is None or not isinstance(x.checked_type, TensorType):
        return _placeholder(x.checked_type, name, sizes)
    stored = te.placeholder(tuple(map(sizes.size, x.checked_type.shape)),
                            dtype=_dtype_of(inner, x.checked_type.dtype), name=name)
    dtype = x.checked_type.dtype
    return te.compute(stored.shape, lambda *i: stored[i].astype(dtype), name=f"{name}_cast")


def _dtype_of(x: Expr, default: DType) -> DType:
    return x.checked_type.dtype if isinstance(x.checked_type, TensorType) else default


def _placeholder(type_: object, name: str, sizes: SizeVars) -> object:
    if isinstance(type_, TensorType):
        return te.placeholder(tuple(map(sizes.size, type_.shape)), dtype=type_.dtype, name=name)
    if isinstance(type_, TupleType):
        return tuple(_placeholder(f, f"{name}_{n}", sizes) for n, f in enumerate(type_.fields))
    raise LoweringError("an operand is no tensor", got=type_)


def _symbols(type_: object) -> set[str]:
    if isinstance(type_, TensorType):
        return {s for d in type_.shape if isinstance(d, SymDim) for s in d.symbols()}
    if isinstance(type_, TupleType):
        return {s for f in type_.fields for s in _symbols(f)}
    return set()
