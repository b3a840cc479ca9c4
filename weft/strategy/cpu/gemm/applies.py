"""The matmul that an algorithm is chosen for, and which algorithms can run it.

``nn.dense``, ``nn.matmul`` and ``nn.batch_matmul`` are one family: ``C = A * B`` with A of M rows
and K columns, B of K rows and N columns, for each matrix of a batch.
"""

from __future__ import annotations

import dataclasses
import math

from weft.ir import DType, TensorType, float32, int32, is_static, range_of, typical_size
from weft.ir.expr import Call, Constant
from weft.ir.shape import AnyDim, Dim, SymDim, bounds_of, dim_product, substitute_dim
from weft.op.nn.dense import DenseAttrs, WeightPanels
from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.cpu.dot_product.instruction import (
    DotInstruction,
    features_for,
    select_dot_instruction,
)
from weft.strategy.cpu.gemm.cost import GemmShape
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.topi.nn.dense import accumulator_dtype
from weft.transform.analysis.graph import known_type

# The sizes of a symbolic M by which tiles are ranked: rows of decoding, of short and long inputs.
SAMPLES_OF_M = (1, 2, 4, 7, 16, 33, 64, 100, 197, 512)
# With fewer rows or columns most of a register tile, or of a packed B panel, is unused: measured
# on matmuls of 2 to 16 rows and columns on an AMD core with AVX-512.
MIN_PACKED_ROWS, MIN_COLUMNS = 4, 3
GEMM_DTYPES = ("float32", "float64", "int32", "int64")


@dataclass(frozen=True, slots=True)
class MatmulProblem:
    """All that the choice for one call depends on; calls with equal problems share a decision.

    ``b`` is the type of B as it is stored: (N, K) with ``transpose_b`` or (K, N). A weight that is
    constant or packed already counts as (N, K), whatever its layout. ``flat_rows``: the leading
    axes of A together are M (``nn.dense``), else they are a batch. ``is_constant``: B is known when
    the program is compiled, so that packing it takes no time at run time. ``panels``: B has been
    packed so.
    """

    a: TensorType
    b: TensorType
    c: TensorType
    transpose_a: bool
    transpose_b: bool
    flat_rows: bool = False
    is_constant: bool = False
    panels: WeightPanels | None = None

    @staticmethod
    def of(call: Call, *, may_pack: bool = True) -> MatmulProblem | None:
        """The problem of a typed call; ``None`` for ranks and layouts that only the generic
        algorithm takes. Without ``may_pack`` the layout of a constant weight is final.
        """
        a, b, c = (known_type(x) for x in (*call.args, call))
        if not (isinstance(a, TensorType) and isinstance(b, TensorType)
                and isinstance(c, TensorType)):
            return None
        attrs = call.attrs
        if isinstance(attrs, DenseAttrs):
            if a.ndim < 2:
                return None  # a vector has no rows to tile
            constant = may_pack and isinstance(call.args[1], Constant)
            return _dense_problem(a, b, c, attrs, is_constant=constant)
        if isinstance(attrs, MatmulAttrs | BatchMatmulAttrs) and a.ndim == b.ndim == c.ndim <= 3:
            return MatmulProblem(a, b, c, attrs.transpose_a, attrs.transpose_b)
        return None

    @property
    def is_known(self) -> bool:
        """Whether symbols determine all sizes that are not fixed."""
        return not any(isinstance(d, AnyDim) for t in (self.a, self.b, self.c) for d in t.shape)

    @property
    def is_empty(self) -> bool:
        """Whether a fixed size is 0."""
        return any(0 in t.shape for t in (self.a, self.b, self.c))

    @property
    def matrices(self) -> int:
        """The size of the batch, at least 1; a symbolic one counts as its smallest."""
        sizes = () if self.flat_rows else self.c.shape[:-2]
        return math.prod(d if isinstance(d, int) else least_used(d) for d in sizes)

    @property
    def m(self) -> Dim:
        """The rows of one matrix."""
        *leading, _ = self.c.shape
        return dim_product(tuple(leading)) if self.flat_rows else leading[-1]

    def shape(self, accumulator: DType) -> GemmShape:
        """M, N and K; a size that is not known counts as a typical one."""
        k = self.a.shape[-2 if self.transpose_a else -1]
        n, m = self.c.shape[-1], self.m
        symbolic = tuple(name for name, size in (("M", m), ("N", n), ("K", k))
                         if not isinstance(size, int))
        return GemmShape(max(typical_size(m), 1), typical_size(n), typical_size(k), accumulator,
                         symbolic, samples_of(m) if "M" in symbolic else ())

    def before_packing(self) -> MatmulProblem:
        """The problem as it was when its weight, constant then, was packed."""
        return dataclasses.replace(self, is_constant=True, panels=None)


def _dense_problem(
    a: TensorType, b: TensorType, c: TensorType, attrs: DenseAttrs, *, is_constant: bool
) -> MatmulProblem | None:
    panels = attrs.panels
    if panels is None and attrs.weight_layout not in ("NK", "KN"):
        return None
    is_constant = is_constant and panels is None and is_static(b)
    is_kn = attrs.weight_layout == "KN"
    if panels is not None or is_constant:
        b, is_kn = TensorType((c.shape[-1], a.shape[-1]), b.dtype), False
    return MatmulProblem(a, b, c, False, not is_kn, flat_rows=True, is_constant=is_constant,
                         panels=panels)


def least_used(dim: Dim) -> int:
    """A dimension where every symbol has its smallest size at which there is work, at least 1."""
    if isinstance(dim, SymDim):
        dim = substitute_dim(dim, {s: max(1, range_of(s).low) for s in dim.symbols()})
    return max(1, dim) if isinstance(dim, int) else 1


def samples_of(m: Dim) -> tuple[int, ...]:
    """Sizes that a symbolic M may have, and its largest one if that is known."""
    low, high = least_used(m), bounds_of(m)[1]
    found = [size for size in SAMPLES_OF_M if low <= size and (high is None or size < high)]
    return (*found, *(() if high is None else (max(high, 1),))) or (low,)


def why_not_prepacked(problem: MatmulProblem) -> str | None:
    """Why no weight in panels can be read; ``None`` where one can."""
    if problem.panels is None and not problem.is_constant:
        return "the weight is a run-time argument"
    if 0 in problem.b.shape:
        return "the weight is empty"
    return None


def why_not_prepacked_gemm(problem: MatmulProblem) -> str | None:
    """Why the GEMM over a weight in panels does not apply; ``None`` where it does."""
    reason = why_not_prepacked(problem)
    if reason is not None:
        return reason
    if not problem.is_known:
        return "a size is not known"
    panels = problem.panels
    if panels is not None and panels.k_group > 1:
        return "the weight is packed for a dot-product instruction"
    if (problem.c.shape[-1] if panels is None else panels.nr) == 1:
        return "a panel of one column fills no vector"
    return None


def why_not_gemm(problem: MatmulProblem) -> str | None:
    """Why the GEMM over B as it is stored does not apply; ``None`` where it does."""
    a, b, c = problem.a, problem.b, problem.c
    accumulator = accumulator_dtype(a.dtype)
    if a.dtype is not b.dtype:
        return f"the operands are {a.dtype} and {b.dtype}"
    if str(accumulator) not in GEMM_DTYPES:
        return f"a GEMM would accumulate {a.dtype} in {accumulator}, which overflows"
    if c.dtype not in (a.dtype, accumulator):
        return f"the result is {c.dtype}, the accumulators are {accumulator}"
    if problem.panels is not None or a.ndim != b.ndim or a.ndim < 2:
        return "the operands are not two stored matrices or two stacks of them"
    if problem.is_empty or not problem.is_known:
        return "a size is 0 or not known"
    return None if c.dtype is not accumulator else _why_too_small(problem)


def _why_too_small(problem: MatmulProblem) -> str | None:
    """Why a GEMM is slower than the generic algorithm; ``None`` where it may be faster.

    Narrow floats are exempt: the generic algorithm converts A for each column again.
    """
    shape = problem.shape(accumulator_dtype(problem.a.dtype))
    if shape.n < MIN_COLUMNS:
        return f"{shape.n} columns fill no register tile"
    if problem.transpose_b and shape.m < MIN_PACKED_ROWS:
        return f"packing the transposed B takes longer than {shape.m} rows gain"
    return None


def dot_product_of(
    problem: MatmulProblem, target: CpuTarget, *, prepacked: bool
) -> DotInstruction | None:
    """The dot-product instruction for a problem of known sizes, with accumulators of 32 bits."""
    if problem.is_empty or not problem.is_known:
        return None
    a, b, c = problem.a.dtype, problem.b.dtype, problem.c.dtype
    plan = select_dot_instruction(a, b, target, keeps_right=prepacked)
    panels = problem.panels
    if plan is None or (panels is not None and not (
            panels.nr % plan.lanes == 0 and panels.k_group == plan.k_group)):
        return None
    wanted = (int32,) if plan.accumulator.is_int else (float32, a)
    return plan if c in wanted else None


def why_no_dot_product(problem: MatmulProblem, target: CpuTarget, *, prepacked: bool) -> str:
    """Why ``dot_product_of`` found no instruction."""
    a, b, c = problem.a.dtype, problem.b.dtype, problem.c.dtype
    features = features_for(a, b, target)
    if not features:
        return f"no instruction multiplies {a} by {b}"
    if select_dot_instruction(a, b, target) is None:
        return f"the CPU lacks {' and '.join(features)}"
    if prepacked and select_dot_instruction(a, b, target, keeps_right=True) is None:
        return f"the instruction takes no weight of {b} without a conversion"
    if problem.is_empty or not problem.is_known:
        return "a size is 0 or not known"
    return f"the result is {c}" if problem.panels is None else "the weight is packed otherwise"
