"""The implementations of attention: one per candidate that runs as a kernel."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from weft import te
from weft.ir import Call
from weft.strategy.common import attention as common
from weft.strategy.cpu.attention.compute import (
    blocked_backward,
    decode_attention,
    fused_attention,
    streamed_loops,
)
from weft.strategy.cpu.attention.cost import (
    MAX_VECTORS,
    TilePlan,
    fits_l2,
    plan_of,
    smallest_block,
)
from weft.strategy.cpu.attention.decide import (
    AttentionAlgorithm,
    AttentionCandidate,
    BackwardAlgorithm,
    backward_offset,
    decide_backward,
    decide_streamed,
    kernel_candidates,
)
from weft.strategy.cpu.attention.small_gemm import SmallGemm
from weft.strategy.cpu.common.context import CpuContext
from weft.strategy.cpu.common.register_tile import RegisterTile, fits_registers
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.elementwise.schedule import schedule_loops
from weft.strategy.implementation import Implementation, compute_of
from weft.strategy.registry import strategy
from weft.strategy.space import Knob, Point, Space
from weft.support.errors import ScheduleError
from weft.target import CpuTarget
from weft.te import ExternOp


def schedule_attention(ctx: CpuContext) -> None:
    """Compute the operands (conversions, masks) in loops of the injective family, before the body.

    The body reads whole operands, so they cannot be inlined into it.
    """
    body = ctx.anchor.op
    for tensor in body.inputs if isinstance(body, ExternOp) else ():
        if isinstance(tensor.op, te.ComputeOp):
            schedule_loops(ctx.schedule[tensor], tensor, compute_of(tensor).body, ctx.target)


@strategy("nn.attention", target="cpu", complete=True)
@strategy("nn.masked_attention", target="cpu", complete=True)
def attention(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Fused tiles, decode attention, and the operator's compute under the default schedule."""
    for candidate in kernel_candidates(call, target):
        yield _implementation(call, candidate, target)


@strategy("nn.cached_attention", target="cpu", complete=True)
def cached_attention(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Streamed attention, or the operator's compute under the default schedule."""
    candidate = decide_streamed(call, target).chosen
    name = f"{call.op}.cpu.{candidate.algorithm}"
    if candidate.algorithm == AttentionAlgorithm.GENERIC:
        yield Implementation(name, schedule_default, seconds=candidate.seconds)
    else:
        compute = functools.partial(
            common.cached_attention, loops=functools.partial(streamed_loops, target=target))
        yield Implementation(name, schedule_attention, compute, candidate.seconds)


def _implementation(
    call: Call, candidate: AttentionCandidate, target: CpuTarget
) -> Implementation:
    plan, name = candidate.plan, f"{call.op}.cpu.{candidate.algorithm}"
    if plan.shape is None:
        return Implementation(name, schedule_default, seconds=candidate.seconds)
    compute: functools.partial[te.Tensor]
    if candidate.algorithm == AttentionAlgorithm.STREAMED:
        compute = functools.partial(common.dense_attention, offset=common.causal_offset(call),
                                    loops=functools.partial(streamed_loops, target=target))
        return Implementation(name, schedule_attention, compute, candidate.seconds)
    if plan.tiles is not None:
        return _fused(name, candidate.seconds, plan.tiles, target)
    compute = functools.partial(decode_attention, shape=plan.shape, lanes=target.lanes("float32"))
    return Implementation(name, schedule_attention, compute, candidate.seconds)


def _fused(name: str, seconds: float, tiles: TilePlan, target: CpuTarget) -> Implementation:
    """Fused tiles, with the queries and keys of a tile and the rows of its products left open."""
    shape, lanes = tiles.shape, tiles.lanes

    def made(plan: TilePlan) -> Implementation:
        return Implementation(name, schedule_attention,
                              functools.partial(fused_attention, plan=plan), seconds)

    def at(point: Point) -> Implementation:
        values = {key: int(value) for key, value in point.items()}
        vectors, block = values["vectors"], values["block"]
        plan = tiles
        if (vectors, block) != (tiles.vectors, tiles.block):
            if not fits_l2(shape, vectors * lanes, block, target):
                raise ScheduleError("the buffers of a tile exceed L2", got=f"{block} keys")
            plan = plan_of(shape, lanes, vectors, block, target)
        keys, width = values["key_rows"], values["value_rows"]
        if not fits_registers(RegisterTile(max(keys, width), vectors), target):
            raise ScheduleError("the register tile exceeds the registers", got=f"{keys}, {width}")
        return made(dataclasses.replace(plan, key_rows=keys or plan.key_rows,
                                        value_rows=width or plan.value_rows))

    def space() -> Space:
        small, most = smallest_block(target), -(-shape.queries // lanes)
        rows = range(target.vector_registers - 2)  # 0: what the estimate takes
        return Space(name, (
            Knob.of("vectors", range(1, min(most, MAX_VECTORS) + 1), tiles.vectors),
            Knob.of("block", {min(shape.keys, small << n >> 1) for n in range(5)}, tiles.block),
            Knob.of("key_rows", (n for n in rows if n <= shape.keys), 0),
            Knob.of("value_rows", (n for n in rows if n <= shape.width), 0)), at)

    return dataclasses.replace(made(tiles), space=space)


@strategy("nn.attention_backward", target="cpu", complete=True)
@strategy("nn.masked_attention_backward", target="cpu", complete=True)
def attention_backward(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Blocks of queries by blocks of keys, or the operator's compute under the default schedule."""
    candidate = decide_backward(call, target).chosen
    name = f"{call.op}.cpu.{candidate.algorithm}"
    if candidate.algorithm == BackwardAlgorithm.GENERIC:
        yield Implementation(name, schedule_default, seconds=candidate.seconds)
    else:
        compute = functools.partial(blocked_backward, offset=backward_offset(call),
                                    gemm=SmallGemm.of(target))
        yield Implementation(name, schedule_attention, compute, candidate.seconds)
