"""What each algorithm offers for a convolution: plans with estimates, or why it does not apply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from weft.ir.dtype import float32
from weft.op.nn.conv import ConvAlgorithm
from weft.strategy.cpu.common.blocking import block_for
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.convolution.applies import (
    EMPTY,
    RUNTIME_KERNEL,
    SYMBOLIC_CHANNELS,
    block_of,
    depthwise_blocks_of,
    has_blocked_result,
    plan_channels_last_dots,
    plan_dots,
    why_not_unblocked_depthwise,
)
from weft.strategy.cpu.convolution.cost import (
    colliding_pixel_cycles,
    estimate_blocked,
    estimate_channels_last_dots,
    estimate_dot_product,
    estimate_packed,
    estimate_unblocked,
    generic_cycles,
    worth_prefetching,
)
from weft.strategy.cpu.convolution.plan import ConvPlan, Offer, candidate
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.convolution.row_block import blocked_row_block, unblocked_row_block
from weft.strategy.cpu.depthwise.cost import blocked_depthwise_cycles, unblocked_depthwise_cycles
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import Candidate, Rejected
from weft.target import CpuTarget
from weft.topi.layout import Layout


def offer_direct(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """All algorithms but Winograd, in the order in which the first of equals is taken."""
    if not problem.has_fixed_channels:
        yield Rejected(ConvAlgorithm.DIRECT_UNBLOCKED, SYMBOLIC_CHANNELS)
    elif problem.shape.is_empty:
        yield Rejected(ConvAlgorithm.DIRECT_UNBLOCKED, EMPTY)
    else:
        dots = list(offer_dot_product(problem, target))
        yield from dots
        if any(isinstance(offer, Candidate) for offer in dots):
            for algorithm in (ConvAlgorithm.DIRECT_BLOCKED, ConvAlgorithm.DIRECT_UNBLOCKED):
                yield Rejected(algorithm, "a dot product instruction takes the narrow operands")
        elif problem.shape.is_depthwise:
            yield Rejected(ConvAlgorithm.DIRECT_BLOCKED, "each group has a single channel")
            yield from _offer_depthwise(problem, target)
        else:
            blocked = list(_offer_blocked(problem, target))
            yield from blocked
            yield from _without_open_rows(problem, blocked, _offer_unblocked(problem, target))
    generic = ConvPlan.in_own_layouts(problem, ConvAlgorithm.GENERIC)
    yield candidate(generic, generic_cycles(problem.shape, target), target)


def _without_open_rows(
    problem: ConvProblem, blocked: Sequence[Offer], unblocked: Iterator[Offer]
) -> Iterator[Offer]:
    """Vectors along a row of symbolic size leave a tail at every row, which channels do not."""
    has_blocks = any(isinstance(offer, Candidate) and not offer.plan.added_outputs
                     for offer in blocked)
    for offer in unblocked:
        if isinstance(offer, Candidate) and has_blocks and problem.shape.has_open_row:
            yield Rejected(offer.algorithm, "the width of the image is symbolic", offer.seconds)
        else:
            yield offer


# -- dot products ------------------------------------------------------------------------------


def offer_dot_product(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Operands whose dtypes the instruction takes, accumulated in 32 bits."""
    adjacent = _adjacent_dot_product(problem, target)
    if problem.attrs.data_layout != "NCHW":
        yield adjacent
        return
    if isinstance(adjacent, Candidate):
        yield adjacent
    plan = plan_dots(problem, target)
    if isinstance(plan, str):
        yield Rejected(ConvAlgorithm.DOT_PRODUCT, plan)
        return
    packed = f"OHWI{plan.k_group}i"
    if problem.attrs.kernel_layout != packed and not problem.is_unblocked:
        yield Rejected(ConvAlgorithm.DOT_PRODUCT,
                       f"the kernel layout is {problem.attrs.kernel_layout}, not {packed}")
        return
    if problem.is_unblocked and not problem.is_constant:
        yield Rejected(ConvAlgorithm.DOT_PRODUCT, RUNTIME_KERNEL)
        return
    shape = problem.shape
    estimate = estimate_dot_product(shape, plan.k_group, plan.lanes, target)
    # No tile reaches beyond the last output channel: the instruction cannot mask rows.
    rows = max(n for n in range(1, estimate.tile.mr + 1) if shape.outputs % n == 0)
    # Channels that make no whole group are padded with zeros, in the data as in the kernel.
    yield candidate(ConvPlan(
        ConvAlgorithm.DOT_PRODUCT, "NCHW", packed, "NCHW", dot=plan,
        tile=RegisterTile(rows, estimate.tile.nr_vectors),
        added_inputs=-shape.inputs % plan.k_group), estimate.cycles, target)


def _adjacent_dot_product(problem: ConvProblem, target: CpuTarget) -> Offer:
    """The channels of a position are adjacent, in NHWC or as a single block, and read in place; the
    kernel is packed when the model is compiled. Signals and volumes have other spatial axes.

    Legalisation pads the data ahead, and shifts it to the sign that the instruction takes.
    """
    dot = plan_channels_last_dots(problem, target)
    if isinstance(dot, str):
        return Rejected(ConvAlgorithm.DOT_PRODUCT, dot)
    attrs, shape, images = problem.attrs, problem.shape, problem.unblocked_data
    packed = f"O{attrs.spatial}I{dot.lanes}o{dot.k_group}i"
    is_written = problem.is_channels_last or problem.is_unblocked
    added, more = -shape.outputs % dot.lanes, -shape.inputs % dot.k_group
    last = f"N{attrs.spatial}C"
    layouts = ((last, packed, last) if attrs.data_layout == last else
               (f"{images}{shape.inputs + more}c", packed, f"{images}{shape.outputs + added}c"))
    if not is_written and layouts != (attrs.data_layout, attrs.kernel_layout, attrs.result_layout):
        return Rejected(ConvAlgorithm.DOT_PRODUCT,
                        f"the layouts are {attrs.data_layout} and {attrs.kernel_layout}, not "
                        f"{layouts[0]} and {packed}")
    if attrs.kernel_layout != packed and not problem.is_constant:
        return Rejected(ConvAlgorithm.DOT_PRODUCT, RUNTIME_KERNEL)
    padded = shape.with_outputs(shape.outputs + added)
    estimate, rows = estimate_channels_last_dots(padded, dot.k_group, dot.lanes, target)
    # A pass over the result cuts off the channels that were added.
    cut = machine_model(target).conversion_cycles(shape.dtype.itemsize) * shape.elements
    return candidate(ConvPlan(
        ConvAlgorithm.DOT_PRODUCT, *layouts, estimate.tile, rows,
        added_inputs=more, added_outputs=added, dot=dot,
        prepares_data=dot.shifts_left or any(attrs.padding)),
        estimate.cycles + (cut if added else 0.0), target)


def offer_narrow_dot_product(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Narrow floats with accumulators and result in float32."""
    attrs = problem.attrs.replace(out_dtype=float32)
    yield from offer_dot_product(replace(problem, attrs=attrs), target)


# -- depthwise ---------------------------------------------------------------------------------


def _offer_depthwise(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    if problem.is_unblocked:
        yield from _offer_depthwise_blocks(problem, target)
        yield from _offer_depthwise_rows(problem, target)
    elif has_blocked_result(problem):
        block = Layout.parse(problem.attrs.result_layout).factor_of("C")
        plan = ConvPlan.in_own_layouts(problem, ConvAlgorithm.DEPTHWISE_BLOCKED)
        yield candidate(plan, blocked_depthwise_cycles(problem.shape, block, target), target)
    else:
        yield Rejected(ConvAlgorithm.DEPTHWISE_UNBLOCKED,
                       f"the data layout is {problem.attrs.data_layout}, "
                       f"not {problem.unblocked_data}")


def _offer_depthwise_blocks(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Channels of data, kernel and result in blocks."""
    blocks = depthwise_blocks_of(problem, target)
    if not blocks:
        yield Rejected(ConvAlgorithm.DEPTHWISE_BLOCKED, "no block of channels fills a vector")
    for block in blocks:
        data = f"{problem.unblocked_data}{block}c"
        plan = ConvPlan(ConvAlgorithm.DEPTHWISE_BLOCKED, data,
                        f"{problem.unblocked_kernel}1i{block}o", data)
        yield candidate(plan, blocked_depthwise_cycles(problem.shape, block, target), target)


def _offer_depthwise_rows(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Rows of the image are the vectors, in the direct algorithm if they cannot be masked."""
    reason = why_not_unblocked_depthwise(target)
    if reason is not None:
        yield Rejected(ConvAlgorithm.DEPTHWISE_UNBLOCKED, reason)
        yield from _offer_unblocked(problem, target)
        return
    yield Rejected(ConvAlgorithm.DIRECT_UNBLOCKED, "each group has a single channel")
    plan = ConvPlan.in_own_layouts(problem, ConvAlgorithm.DEPTHWISE_UNBLOCKED)
    yield candidate(plan, unblocked_depthwise_cycles(problem.shape, target), target)


# -- direct ------------------------------------------------------------------------------------


def _offer_blocked(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Vectors are blocks of output channels.

    Layouts that are blocked already stay. Of a NCHW convolution the result is blocked, the data
    too or not; channels-last data and results stay, since their channels are neighbours.
    """
    layout, kernel = (Layout.parse(name) for name in (
        problem.attrs.result_layout, problem.attrs.kernel_layout))
    block = layout.factor_of("C") if has_blocked_result(problem) else kernel.factor_of("O")
    if block > 1:
        yield _blocked_candidate(ConvPlan.in_own_layouts(problem, ConvAlgorithm.DIRECT_BLOCKED),
                                 block, problem, target)
    elif problem.is_unblocked:
        yield from _offer_blocked_channels(problem, target)
        yield from _offer_padded_channels(problem, target)
    elif problem.is_channels_last:
        yield from _offer_blocked_kernel(problem, target)
    else:
        yield Rejected(ConvAlgorithm.DIRECT_BLOCKED, f"the kernel layout is {kernel}, not in "
                                                     "blocks of output channels")


def _offer_blocked_channels(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """The result in blocks that divide its channels, the data in blocks or as it is."""
    block = block_of(problem.shape.group_outputs, problem, target)
    if block is None:
        yield Rejected(ConvAlgorithm.DIRECT_BLOCKED, "no block of output channels fills a vector")
        return
    for plan in _blocked_plans(problem, block, target):
        yield _blocked_candidate(plan, block, problem, target)


def _offer_padded_channels(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Output channels padded to whole vectors; a pass over the result cuts them off again."""
    shape, lanes = problem.shape, target.lanes(problem.shape.dtype)
    added = -shape.outputs % lanes
    if not added or shape.groups > 1 or not problem.is_constant:
        return
    model = machine_model(target)
    cut = model.seconds(model.conversion_cycles(shape.dtype.itemsize) * shape.elements)
    for plan in _blocked_plans(problem, lanes, target):
        padded = _blocked_candidate(replace(plan, added_outputs=added), lanes, problem, target)
        yield replace(padded, seconds=padded.seconds + cut)


def _offer_blocked_kernel(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """Data and result in NHWC, a constant kernel in blocks."""
    block = block_of(problem.shape.group_outputs, problem, target)
    if not problem.is_constant or block is None:
        yield Rejected(ConvAlgorithm.DIRECT_BLOCKED, RUNTIME_KERNEL if block is not None
                       else "no block of output channels fills a vector")
        return
    attrs = problem.attrs
    plan = ConvPlan(ConvAlgorithm.DIRECT_BLOCKED, attrs.data_layout,
                    blocked_kernel(attrs.spatial, 1, block), attrs.result_layout)
    yield _blocked_candidate(plan, block, problem, target)


def _blocked_plans(problem: ConvProblem, block: int, target: CpuTarget) -> Iterator[ConvPlan]:
    """The data in blocks, and as it is."""
    shape, data = problem.shape, problem.unblocked_data
    for in_block in (block_for(shape.group_inputs, target, str(shape.dtype)), 1):
        yield ConvPlan(ConvAlgorithm.DIRECT_BLOCKED,
                       data if in_block == 1 else f"{data}{in_block}c",
                       blocked_kernel(problem.attrs.spatial, in_block, block), f"{data}{block}c")


def _blocked_candidate(
    plan: ConvPlan, block: int, problem: ConvProblem, target: CpuTarget
) -> Candidate[ConvPlan]:
    shape = problem.shape
    shape = shape.with_outputs(shape.outputs + plan.added_outputs)
    estimate = estimate_blocked(shape, block, target)
    row_block = blocked_row_block(shape, block, estimate.tile, target)
    prefetches = worth_prefetching(shape, estimate, row_block, target)
    made = replace(plan, tile=estimate.tile, row_block=row_block, prefetches=prefetches)
    waits = colliding_pixel_cycles(shape, estimate, made, block, target)
    return candidate(made, estimate.cycles + waits, target)


def blocked_kernel(spatial: str, in_block: int, block: int) -> str:
    """The layout of kernels that the blocked schedule reads front to back: OHIW16i16o."""
    *rows, column = spatial
    inputs = f"{in_block}i" if in_block > 1 else ""
    return f"O{''.join(rows)}I{column}{inputs}{block}o"


def _offer_unblocked(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    if not problem.is_unblocked:
        attrs = problem.attrs
        yield Rejected(ConvAlgorithm.DIRECT_UNBLOCKED,
                       f"the layouts are {attrs.data_layout} and {attrs.kernel_layout}, not "
                       f"{problem.unblocked_data} and {problem.unblocked_kernel}")
        return
    packed = estimate_packed(problem.shape, target)
    if packed is not None:
        plan = ConvPlan.in_own_layouts(problem, ConvAlgorithm.DIRECT_UNBLOCKED, packed.tile)
        yield candidate(replace(plan, packs_pixels=True), packed.cycles, target)
        return
    estimate = estimate_unblocked(problem.shape, target)
    row_block = unblocked_row_block(problem.shape, estimate.tile, target)
    plan = ConvPlan.in_own_layouts(problem, ConvAlgorithm.DIRECT_UNBLOCKED, estimate.tile,
                                   row_block)
    yield candidate(plan, estimate.cycles, target)
