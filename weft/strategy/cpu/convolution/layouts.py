"""The layouts that the candidates for a convolution need, for the layout pass to weigh."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from weft.ir import Call, Type
from weft.op.nn.conv import ConvAlgorithm, ConvAttrs
from weft.strategy.cpu.convolution.decide import conv_offers
from weft.strategy.cpu.convolution.plan import ConvPlan
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.decision import Candidate
from weft.strategy.registry import alter_layout, reads_finite
from weft.target import CpuTarget
from weft.transform.layout.layout_choice import LayoutChoice


@reads_finite
@alter_layout("nn.conv1d", target="cpu")
@alter_layout("nn.conv2d", target="cpu")
@alter_layout("nn.conv3d", target="cpu")
def conv_layouts(
    call: Call, types: Sequence[Type], target: CpuTarget
) -> Sequence[LayoutChoice] | None:
    """One choice for each candidate; the algorithm of the one that is taken is recorded.

    Legalisation has rewritten the calls of Winograd's algorithm and those that compute in another
    dtype; the default schedule needs no layout.
    """
    problem = ConvProblem.of(call, types)
    if problem is None or problem.attrs.algorithm is not None:
        return None
    if not (problem.is_unblocked or problem.is_channels_last):
        return None
    return _choices(problem, target) or None


@functools.lru_cache(maxsize=1024)
def _choices(problem: ConvProblem, target: CpuTarget) -> Sequence[LayoutChoice]:
    return [_choice(problem, problem.attrs, offer)
            for offer in conv_offers(problem, target).candidates
            if not offer.plan.is_rewritten
            and offer.plan.algorithm is not ConvAlgorithm.GENERIC]


def _choice(problem: ConvProblem, attrs: ConvAttrs, offer: Candidate[ConvPlan]) -> LayoutChoice:
    plan, shape = offer.plan, problem.shape
    new = attrs.replace(
        algorithm=plan.algorithm, data_layout=plan.data_layout, kernel_layout=plan.kernel_layout,
        out_layout=attrs.out_layout if plan.out_layout == attrs.result_layout else plan.out_layout,
        finite_kernel=attrs.finite_kernel or problem.is_finite,
        channels=shape.outputs + plan.added_outputs if plan.added_outputs else attrs.channels)
    return LayoutChoice(
        new,
        ((attrs.data_layout, plan.data_layout), (attrs.kernel_layout, plan.kernel_layout)),
        None if plan.out_layout == attrs.result_layout else plan.out_layout,
        paddings=_paddings(plan, attrs),
        cut=(attrs.result_layout.index("C"), shape.outputs) if plan.added_outputs else None,
        seconds=offer.seconds,
    )


def _paddings(plan: ConvPlan, attrs: ConvAttrs) -> tuple[tuple[int, ...] | None, ...]:
    """The zeros to append along each axis of data and kernel."""
    if not plan.added_inputs and not plan.added_outputs:
        return ()
    data = {"C": plan.added_inputs}
    kernel = {"O": plan.added_outputs, "I": plan.added_inputs}
    return (tuple(data.get(axis, 0) for axis in attrs.data_layout) if plan.added_inputs else None,
            tuple(kernel.get(axis, 0) for axis in attrs.kernel_layout))
