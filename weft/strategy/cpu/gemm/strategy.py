"""The matmul family: implementations, rewrites, and the layout of constant weights."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

from weft.ir import Call, Constant, Expr, Family, PassContext, dim_product, get_op
from weft.ir.types import TensorType, Type, has_any
from weft.op.nn.dense import DenseAttrs
from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.dot_product.compute import dot_product_matmul, prepacked_dot_product
from weft.strategy.cpu.dot_product.cost import DotProductPlan
from weft.strategy.cpu.dot_product.schedule import schedule_dot_product
from weft.strategy.cpu.dot_product.upcast import upcast_operands
from weft.strategy.cpu.gemm.applies import MatmulProblem
from weft.strategy.cpu.gemm.blocking import GemmPlan
from weft.strategy.cpu.gemm.compute import gemm, prepacked_gemm
from weft.strategy.cpu.gemm.decide import decide_matmul, runnable
from weft.strategy.cpu.gemm.schedule import schedule_gemm
from weft.strategy.cpu.gemm.space import gemm_space
from weft.strategy.decision import Candidate
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import alter_layout, legalize, strategy
from weft.target import CpuTarget
from weft.topi.layout import Layout
from weft.transform.layout.layout_choice import LayoutChoice


@strategy(Family.MATMUL, target="cpu", complete=True)
def matmul(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The candidates of the decision, as implementations."""
    for candidate in runnable(call, target):
        yield _implementation(call, candidate, target)


@alter_layout("nn.dense", target="cpu")
def dense_layout(call: Call, types: Sequence[Type], target: CpuTarget) -> LayoutChoice | None:
    """A constant weight in the panels that the decision asks for, padded to whole ones."""
    attrs, weight = attrs_of(call, DenseAttrs), types[1]
    if attrs.panels is not None:
        return None
    decision = decide_matmul(call, target)
    plan = decision.plan
    if plan is None or plan.panels is None or not isinstance(weight, TensorType):
        return None
    layout, written = plan.panels.layout, attrs.weight_layout
    sizes: dict[str, int] = dict(zip(written, weight.concrete_shape, strict=True))
    zeros = tuple(-sizes[axis] % Layout.parse(layout).factor_of(axis) for axis in written)
    units = sizes["N"] if isinstance(plan, DotProductPlan) or any(zeros) else None
    return LayoutChoice(attrs.replace(weight_layout=layout, units=units),
                        (None, (written, layout)), paddings=(None, zeros if any(zeros) else None),
                        seconds=decision.seconds)


def _implementation(
    call: Call, candidate: Candidate[GemmPlan | DotProductPlan | None], target: CpuTarget
) -> Implementation:
    prefix = f"{getattr(call.op, 'name', 'matmul')}.{target.kind}"
    plan = candidate.plan
    if isinstance(plan, DotProductPlan):
        made = _dot_product(f"{prefix}.{plan.dot.instruction.name}", call, plan)
    elif isinstance(plan, GemmPlan):
        name = f"{prefix}.{candidate.algorithm}"
        problem = None if plan.assumes else MatmulProblem.of(call, may_pack=False)
        space = None if problem is None else functools.partial(
            gemm_space, name, problem, plan, target, functools.partial(_gemm, name, call))
        made = dataclasses.replace(_gemm(name, call, plan), space=space)
    else:
        made = Implementation(f"{prefix}.{candidate.algorithm}", schedule_default)
    return dataclasses.replace(made, seconds=candidate.seconds)


def _gemm(name: str, call: Call, plan: GemmPlan) -> Implementation:
    if plan.panels is not None:
        return Implementation(name, functools.partial(schedule_gemm, plan=plan, flat_rows=True),
                              functools.partial(prepacked_gemm, plan=plan))
    transpose_a, transpose_b = _transposes(call)
    compute = functools.partial(gemm, transpose_a=transpose_a, transpose_b=transpose_b, plan=plan)
    return Implementation(
        name, functools.partial(schedule_gemm, plan=plan),
        lambda a, b, attrs: compute(a, b, out_dtype=attrs.out_dtype or a.dtype))


def _dot_product(name: str, call: Call, plan: DotProductPlan) -> Implementation:
    schedule = functools.partial(schedule_dot_product, plan=plan,
                                 flat_rows=isinstance(call.attrs, DenseAttrs))
    if plan.panels is not None:
        return Implementation(name, schedule, functools.partial(prepacked_dot_product, plan=plan))
    transpose_a, transpose_b = _transposes(call)
    return Implementation(name, schedule, functools.partial(
        dot_product_matmul, plan=plan, transpose_a=transpose_a, transpose_b=transpose_b))


def _transposes(call: Call) -> tuple[bool, bool]:
    """Whether A and B are stored transposed."""
    attrs = call.attrs
    if isinstance(attrs, MatmulAttrs | BatchMatmulAttrs):
        return attrs.transpose_a, attrs.transpose_b
    return False, attrs_of(call, DenseAttrs).weight_layout == "NK"


MATRIX = 2


@legalize("nn.dense", target="cpu")
def legalize_dense(
    call: Call, types: Sequence[Type], context: PassContext
) -> Expr | None:
    """The leading axes of the data as rows; ``None`` to keep the call.

    A constant weight is packed, and its GEMM takes data of any rank. That over a weight as it is
    stored, which training changes, takes matrices. Bytes are upcast where the CPU multiplies int16.
    """
    data, weight = types[:2]
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
        return None
    if isinstance(call.args[1], Constant) and isinstance(context.target, CpuTarget):
        return upcast_operands(call, data, weight, context.target)
    is_matrix = data.ndim <= MATRIX or has_any(data.shape)
    packed = attrs_of(call, DenseAttrs).weight_layout not in ("NK", "KN")
    if is_matrix or packed:
        return None
    *leading, depth = data.shape
    reshape = get_op("reshape")
    rows = reshape(call.args[0], newshape=(dim_product(tuple(leading)), depth), allowzero=True)
    result = call.replace(args=(rows, call.args[1]), checked_type=None)
    columns = weight.shape[0 if attrs_of(call, DenseAttrs).weight_layout == "NK" else 1]
    return reshape(result, newshape=(*leading, columns), allowzero=True)
