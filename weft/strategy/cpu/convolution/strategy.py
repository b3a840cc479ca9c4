"""The implementations of convolutions: one for each algorithm that runs in the call's layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from weft import te
from weft.ir import Call
from weft.op.nn.conv import ConvAlgorithm, ConvAttrs, conv_compute
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.convolution.compute import unblocked_conv
from weft.strategy.cpu.convolution.decide import conv_offers
from weft.strategy.cpu.convolution.plan import ConvPlan
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.convolution.schedule import schedule_blocked, schedule_unblocked
from weft.strategy.cpu.convolution.space import conv_space, has_space
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.depthwise.schedule import (
    schedule_blocked_depthwise,
    schedule_unblocked_depthwise,
)
from weft.strategy.cpu.dot_product.conv_compute import (
    channels_last_dot_product_conv,
    dot_product_conv,
)
from weft.strategy.cpu.dot_product.conv_schedule import (
    schedule_channels_last_dot_product,
    schedule_dot_product_conv,
)
from weft.strategy.decision import Candidate
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import strategy
from weft.support.errors import InternalError, LoweringError
from weft.target import CpuTarget


@strategy("nn.conv1d", target="cpu", complete=True)
@strategy("nn.conv2d", target="cpu", complete=True)
@strategy("nn.conv3d", target="cpu", complete=True)
def convolution(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """What ``decide`` offers in the layouts of the call, the fastest and those it was chosen from.

    Their estimates are for the typical sizes of symbols, in the order of those for a single image.
    Raises ``LoweringError`` for sizes that only run time determines.
    """
    problem = ConvProblem.of(call)
    if problem is None:
        raise unknown_size(call)
    for offer in conv_offers(problem, target, keep_layouts=True).candidates:
        scaled = replace(offer, seconds=offer.seconds * problem.assumed_share)
        yield implementation_of(problem, scaled, target)


def unknown_size(call: Call) -> LoweringError:
    """The error of a convolution whose operands have an unknown dimension."""
    return LoweringError("a convolution has a size that only run time determines",
                         where=call.span, expected="fixed or symbolic sizes",
                         got=", ".join(str(a.checked_type) for a in call.args),
                         help="give the dimension a number or a name")


def implementation_of(
    problem: ConvProblem, offer: Candidate[ConvPlan], target: CpuTarget
) -> Implementation:
    """How an offer is computed and scheduled, and what it leaves open."""
    made = _implemented(problem, offer, target)
    if not has_space(offer.plan, problem):
        return made
    return replace(made, space=partial(
        conv_space, made.name, problem, offer.plan, target,
        lambda plan: _implemented(problem, replace(offer, plan=plan), target)))


def _implemented(
    problem: ConvProblem, offer: Candidate[ConvPlan], target: CpuTarget
) -> Implementation:
    plan, name = offer.plan, f"{problem.op_name}.cpu.{offer.plan.algorithm}"
    match plan.algorithm:
        case ConvAlgorithm.DIRECT_BLOCKED:
            schedule = partial(schedule_blocked, prefetches=plan.prefetches, unroll=plan.unroll,
                               channels_inside=plan.channels_inside)
            return Implementation(name, _tiled(schedule, plan),
                                  partial(conv_compute, skipped=_skipped_axes(problem.attrs)),
                                  seconds=offer.seconds)
        case ConvAlgorithm.DIRECT_UNBLOCKED:
            lanes = target.lanes(problem.attrs.out_dtype or problem.data.dtype)
            panel = _tile_of(plan).nr_vectors * lanes if plan.packs_pixels else 0
            schedule = partial(schedule_unblocked, unroll=plan.unroll)
            return Implementation(name, _tiled(schedule, plan),
                                  partial(unblocked_conv, lanes=lanes, panel=panel),
                                  seconds=offer.seconds)
        case ConvAlgorithm.DEPTHWISE_BLOCKED:
            return Implementation(name, _blocked_depthwise(plan), _depthwise_compute(problem),
                                  seconds=offer.seconds)
        case ConvAlgorithm.DEPTHWISE_UNBLOCKED:
            return Implementation(name, _unblocked_depthwise(plan, problem), seconds=offer.seconds)
        case ConvAlgorithm.DOT_PRODUCT if plan.dot is not None and plan.reads_adjacent_channels:
            is_flat = problem.shape.pointwise and set(problem.attrs.strides) == {1}
            schedule = partial(schedule_channels_last_dot_product, plan=plan.dot,
                               rank=len(problem.attrs.spatial), is_flat=is_flat)
            compute = partial(channels_last_dot_product_conv, plan=plan.dot, is_flat=is_flat)
            return Implementation(f"{problem.op_name}.cpu.{plan.dot.instruction.name}_nhwc",
                                  _tiled(schedule, plan), compute, seconds=offer.seconds)
        case ConvAlgorithm.DOT_PRODUCT if plan.dot is not None:
            made = {"plan": plan.dot, "tile": _tile_of(plan), "is_flat": problem.shape.pointwise}
            return Implementation(f"{problem.op_name}.cpu.{plan.dot.instruction.name}",
                                  partial(schedule_dot_product_conv, **made),
                                  partial(dot_product_conv, **made), seconds=offer.seconds)
        case ConvAlgorithm.GENERIC:
            return Implementation(name, schedule_default, seconds=offer.seconds)
    raise InternalError(f"unknown algorithm {plan.algorithm} for {problem.op_name}")


def _depthwise_compute(problem: ConvProblem) -> Callable[..., te.Tensor] | None:
    """That of the operator, but for a row of symbolic size.

    Its tiles exist in every length, each with the kernel rows inside of the image: loops for those
    above and below it would make three times as many.
    """
    skipped = _skipped_axes(problem.attrs)
    return partial(conv_compute, skipped=skipped) if problem.shape.has_open_row else None


def _tiled(
    schedule: Callable[..., None], plan: ConvPlan
) -> Callable[[ScheduleContext[CpuTarget]], None]:
    return partial(schedule, tile=_tile_of(plan), row_block=plan.row_block)


def _blocked_depthwise(plan: ConvPlan) -> Callable[[ScheduleContext[CpuTarget]], None]:
    """The schedule with the tile and rows of the plan, if it has any."""
    return schedule_blocked_depthwise if plan.tile is None else partial(
        schedule_blocked_depthwise, tile=plan.tile, row_block=plan.row_block,
        unrolls=plan.unroll != 1)


def _unblocked_depthwise(
    plan: ConvPlan, problem: ConvProblem
) -> Callable[[ScheduleContext[CpuTarget]], None]:
    made = partial(schedule_unblocked_depthwise, row_stride=problem.shape.row_stride)
    return made if plan.tile is None else partial(made, tile=plan.tile, unroll=plan.unroll)


def _tile_of(plan: ConvPlan) -> RegisterTile:
    if plan.tile is None:
        raise InternalError(f"a plan of {plan.algorithm} without a register tile")
    return plan.tile


def _skipped_axes(attrs: ConvAttrs) -> str:
    """The axes along which taps on the padding are skipped instead of multiplied by zero.

    The kernel must be finite, since zero times infinity is not zero. The last axis is padded: its
    positions form the register tile.
    """
    return attrs.spatial[:-1] if attrs.finite_kernel else ""
