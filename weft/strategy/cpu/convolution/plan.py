"""How a convolution is run: algorithm, layouts, padding of channels, register tile."""

from __future__ import annotations

from typing import TypeAlias

from weft.op.nn.conv import ConvAlgorithm
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.dot_product.instruction import DotInstruction
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import Candidate, Rejected
from weft.support.dataclass import dataclass
from weft.target import CpuTarget


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """The parameters of one algorithm for one convolution.

    The layouts are those in which the algorithm runs; the layout pass converts the operands if they
    are in others. ``added_inputs`` and ``added_outputs`` channels of zeros are appended first; the
    added outputs are sliced off the result. With ``upcasts`` both operands are converted to float32
    ahead of the convolution. ``tile`` counts positions by channel blocks if channels are the
    vectors, and channels by vectors of positions otherwise; ``row_block`` is how many rows of the
    image a task computes. With ``prefetches`` a task loads the weights of the next one into L2.
    With ``channels_inside`` the channels are the innermost reduction, otherwise the taps of a row;
    ``unroll`` steps of it are one iteration (0: what the schedule does by itself).
    With ``packs_pixels`` a task copies its pixels into a panel as wide as the tile. With
    ``prepares_data`` the data is padded ahead, and shifted to the sign that ``dot`` takes.
    """

    algorithm: ConvAlgorithm
    data_layout: str
    kernel_layout: str
    out_layout: str
    tile: RegisterTile | None = None
    row_block: int = 1
    prefetches: bool = False
    channels_inside: bool = False
    unroll: int = 1
    added_inputs: int = 0
    added_outputs: int = 0
    upcasts: bool = False
    winograd_tile: int | None = None
    packs_pixels: bool = False
    prepares_data: bool = False
    dot: DotInstruction | None = None

    @staticmethod
    def in_own_layouts(problem: ConvProblem, algorithm: ConvAlgorithm,
                       tile: RegisterTile | None = None, row_block: int = 1) -> ConvPlan:
        """The algorithm in the layouts of the call."""
        attrs = problem.attrs
        return ConvPlan(algorithm, attrs.data_layout, attrs.kernel_layout, attrs.result_layout,
                        tile, row_block)

    def keeps_layouts(self, problem: ConvProblem) -> bool:
        """Whether the call runs so as it is, without any conversion of its operands."""
        attrs = problem.attrs
        layouts = (attrs.data_layout, attrs.kernel_layout, attrs.result_layout)
        return (self.layouts == layouts and not self.is_rewritten
                and not self.added_inputs and not self.added_outputs)

    @property
    def reads_adjacent_channels(self) -> bool:
        """Whether ``dot`` takes the channels of a position as they are adjacent in memory."""
        return self.dot is not None and self.kernel_layout != f"OHWI{self.dot.k_group}i"

    @property
    def is_rewritten(self) -> bool:
        """Whether legalisation replaces the call by others."""
        return self.upcasts or self.prepares_data or self.winograd_tile is not None

    @property
    def layouts(self) -> tuple[str, str, str]:
        """Those of data, kernel and result."""
        return self.data_layout, self.kernel_layout, self.out_layout

    @property
    def label(self) -> str:
        """The algorithm, with the layouts where several candidates of it differ by them."""
        if self.algorithm is not ConvAlgorithm.DIRECT_BLOCKED:
            return str(self.algorithm)
        added = f", {self.added_outputs} channels added" if self.added_outputs else ""
        return f"{self.algorithm} {self.data_layout} to {self.out_layout}{added}"


# What a generator of offers yields: an algorithm that applies, or the reason why one does not.
Offer: TypeAlias = Candidate[ConvPlan] | Rejected


def candidate(plan: ConvPlan, cycles: float, target: CpuTarget) -> Candidate[ConvPlan]:
    """The plan with its estimate in seconds."""
    return Candidate(plan.label, machine_model(target).seconds(cycles), plan)
