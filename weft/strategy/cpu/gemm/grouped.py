"""Matrix multiplication by groups of rows: its decision, its implementation, its packed weights."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from weft import te
from weft.ir import Call, Constant, TensorType, Type, float32, typical_size
from weft.op.nn.grouped_matmul import GroupedMatmulAttrs
from weft.strategy.cpu.attention.strategy import schedule_attention
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.gemm.grouped_loops import GroupedLoops
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import alter_layout, strategy
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import const
from weft.topi.nn.dense import accumulator_dtype
from weft.transform.layout.layout_choice import LayoutChoice

GROUPED, GENERIC = "grouped_gemm", "generic"
MAX_VECTORS = 4  # of a panel: a row of accumulators hides the FMA latency behind the loads


@dataclass(frozen=True, slots=True)
class GroupedPlan:
    """The register tile, whose ``nr_vectors`` vectors are the width of a panel."""

    tile: RegisterTile
    lanes: int

    @property
    def nr(self) -> int:
        return self.tile.nr_vectors * self.lanes

    def __str__(self) -> str:
        return f"{self.tile.mr}x{self.nr} tiles, rows of a group exact"


GroupedDecision = Decision[GroupedPlan | None]


@decides("nn.grouped_matmul", target="cpu")
def decide_grouped(call: Call, target: CpuTarget) -> GroupedDecision:
    """Register tiles over packed weights, or the compute under the default schedule.

    The default schedule reads a row of the weight for each row of the data.
    """
    seconds = roofline_seconds(call, target)
    generic: Candidate[GroupedPlan | None] = Candidate(GENERIC, seconds, None)
    reason = _why_not(call)
    if reason is not None:
        return choose((generic,), (Rejected(GROUPED, reason),))
    plan, seconds = _plan(call, target)
    return Decision(Candidate(GROUPED, seconds, plan, str(plan)),
                    (Rejected(GENERIC, "a constant weight is packed when the program is compiled",
                              generic.seconds),))


@strategy("nn.grouped_matmul", target="cpu", complete=True)
def grouped(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """The loops over groups if the weight is in panels, and the default schedule."""
    attrs = attrs_of(call, GroupedMatmulAttrs)
    if attrs.panels is not None and attrs.panels.nr % target.lanes("float32") == 0 \
            and _why_not_types(call) is None:
        plan, seconds = _plan(call, target)
        compute = functools.partial(grouped_gemm, plan=plan)
        yield Implementation(f"nn.grouped_matmul.cpu.{GROUPED}", schedule_attention, compute,
                             seconds)
        return
    yield Implementation(f"nn.grouped_matmul.cpu.{GENERIC}", schedule_default,
                         seconds=roofline_seconds(call, target))


@alter_layout("nn.grouped_matmul", target="cpu")
def grouped_layout(call: Call, types: Sequence[Type], target: CpuTarget) -> LayoutChoice | None:
    """Constant weights in panels, padded to whole ones."""
    attrs, weight = attrs_of(call, GroupedMatmulAttrs), types[1]
    if attrs.panels is not None or not isinstance(weight, TensorType):
        return None
    decision = decide_grouped(call, target)
    if decision.plan is None:
        return None
    nr, written = decision.plan.nr, attrs.weight_layout
    sizes: dict[str, int] = dict(zip(written, weight.concrete_shape, strict=True))
    zeros = tuple(-sizes[axis] % nr if axis == "N" else 0 for axis in written)
    wanted = f"GNK{nr}n"
    return LayoutChoice(
        attrs.replace(weight_layout=wanted, units=sizes["N"] if any(zeros) else attrs.units),
        (None, (written, wanted), None), seconds=decision.seconds,
        paddings=(None, zeros if any(zeros) else None, None))


def grouped_gemm(
    data: te.Tensor, weight: te.Tensor, sizes: te.Tensor, attrs: GroupedMatmulAttrs, *,
    plan: GroupedPlan,
) -> te.Tensor:
    """The product by hand-written loops; narrow floats of the data are converted once."""
    rows = data
    if data.dtype is not float32:
        rows = te.compute(data.shape, lambda *i: data[i].astype(float32), name="rows")
    panels, nr = weight.shape[1], weight.shape[3]
    columns = panels * nr if attrs.units is None else const(attrs.units)
    return te.extern([(data.shape[0], columns)], (rows, weight, sizes),
                     GroupedLoops(plan.tile, plan.lanes), [data.dtype], "grouped_matmul")[0]


def _plan(call: Call, target: CpuTarget) -> tuple[GroupedPlan, float]:
    types = [arg.checked_type for arg in call.args]
    data, weight, result = types[0], types[1], call.checked_type
    assert isinstance(data, TensorType)
    assert isinstance(weight, TensorType)
    assert isinstance(result, TensorType)
    lanes, attrs = target.lanes("float32"), attrs_of(call, GroupedMatmulAttrs)
    groups = typical_size(weight.shape[0])
    rows, columns = typical_size(data.shape[0]), typical_size(result.shape[1])
    each = max(rows // max(groups, 1), 1)
    if attrs.panels is not None:
        vectors = attrs.panels.nr // lanes
        tile = RegisterTile(_rows_of(vectors, target), vectors)
    else:
        vectors = min(MAX_VECTORS, max(-(-columns // lanes), 1))
        tile = RegisterTile(_rows_of(vectors, target), vectors)
    model, depth = machine_model(target), typical_size(data.shape[1])
    steps = -(-each // tile.mr) * -(-columns // (vectors * lanes)) * depth * groups
    return GroupedPlan(tile, lanes), model.seconds(steps * tile.step_cycles(model))


def _rows_of(vectors: int, target: CpuTarget) -> int:
    """The largest mr of a tile of ``vectors`` vectors that fits the registers."""
    return max((target.vector_registers - 1 - vectors) // vectors, 1)


def _why_not(call: Call) -> str | None:
    """Why the loops over groups cannot run the call; ``None`` if they can."""
    if not isinstance(call.args[1], Constant):
        attrs = attrs_of(call, GroupedMatmulAttrs)
        if attrs.panels is None:
            return "the weight is not constant"
    return _why_not_types(call)


def _why_not_types(call: Call) -> str | None:
    data, weight = (arg.checked_type for arg in call.args[:2])
    if not isinstance(data, TensorType) or not isinstance(weight, TensorType):
        return "the types are not known"
    if accumulator_dtype(data.dtype) is not float32:
        return f"the accumulators would be {accumulator_dtype(data.dtype)}"
    if any(size == 0 for size in weight.shape):
        return "the weight is empty"
    return None
