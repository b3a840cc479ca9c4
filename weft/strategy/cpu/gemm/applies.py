"""The matmul that an algorithm is chosen for, and which algorithms can run it.

``nn.dense``, ``nn.matmul`` and ``nn.batch_matmul`` are one family: ``C = A * B`` with A of M rows
and K columns, B of K rows and N columns, for each matrix of a batch.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from weft.ir.dtype import DType, float32, int32
from weft.ir.expr import Call, Constant
from weft.ir.shape import Dim
from weft.ir.types import TensorType, is_static
from weft.op.nn.dense import DenseAttrs, WeightPanels
from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.cpu.dot_product.instruction import (
    DotInstruction,
    features_for,
    select_dot_instruction,
)
from weft.strategy.cpu.gemm.cost import GemmShape
from weft.target import CpuTarget
from weft.topi.nn.dense import accumulator_dtype
from weft.transform.analysis.graph import known_type

# M where it is known at run time only, and N and K likewise.
TYPICAL_SIZE = 64
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
            constant = may_pack and isinstance(call.args[1], Constant)
            return _dense_problem(a, b, c, attrs, is_constant=constant)
        if isinstance(attrs, MatmulAttrs | BatchMatmulAttrs) and a.ndim == b.ndim == c.ndim <= 3:
            return MatmulProblem(a, b, c, attrs.transpose_a, attrs.transpose_b)
        return None

    @property
    def is_static(self) -> bool:
        """Whether all sizes are known, and none is 0."""
        return all(is_static(t) and 0 not in t.shape for t in (self.a, self.b, self.c))

    @property
    def matrices(self) -> int:
        """The size of the batch."""
        return 1 if self.flat_rows else math.prod(map(_size, self.c.shape[:-2]))

    def shape(self, accumulator: DType) -> GemmShape:
        """M, N and K; a size that is not known counts as a typical one."""
        *leading, columns = map(_size, self.c.shape)
        rows = math.prod(leading) if self.flat_rows else leading[-1]
        m = rows if is_static(self.a) else TYPICAL_SIZE
        k = _size(self.a.shape[-2 if self.transpose_a else -1])
        return GemmShape(max(m, 1), columns, k, accumulator)

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


def _size(dim: Dim) -> int:
    return dim if isinstance(dim, int) else TYPICAL_SIZE


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
    panels = problem.panels
    if panels is not None:
        if panels.k_group > 1:
            return "the weight is packed for a dot-product instruction"
        if not (is_static(problem.a) and is_static(problem.c)):
            return "M is not known"
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
    if not problem.is_static:
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
    if not problem.is_static:
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
    if not problem.is_static:
        return "a size is 0 or not known"
    return f"the result is {c}" if problem.panels is None else "the weight is packed otherwise"
