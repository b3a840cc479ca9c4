"""The purpose of a stage that a schedule treats apart from the other stages of a kernel."""

from __future__ import annotations

from enum import Enum, auto


class StageRole(Enum):
    """The purpose of a compute, set by its constructor and read by schedules.

    Most computes need none: a schedule recognises reductions and injective stages by their bodies.
    A role says what the body cannot: that a copy is a packed matrix operand, or that a small tensor
    is a table which must be computed once and not inlined.
    """

    PADDING = auto()
    """The input of a windowed operator, copied with its border or in the layout of its reads."""
    LOOKUP_TABLE = auto()
    """Indices, weights or counts that all outputs share: computed first, never inlined."""
    RESAMPLING = auto()
    """One axis of a separable resampling; each such stage but the last is materialized."""
    PACKED_A = auto()
    """The left operand of a GEMM, packed into panels or converted to the accumulator dtype."""
    PACKED_B = auto()
    """The right operand of a GEMM, packed into panels."""
    INTERLEAVED_B = auto()
    """The right operand of a dot product instruction, packed by interleaving its rows."""
    CHANNEL_GROUPS = auto()
    """Channels gathered into the groups that one lane of a dot product instruction reads."""
    DOT_PRODUCT = auto()
    """The reduction that a dot product instruction computes."""
    OPERAND_SUMS = auto()
    """Sums of an operand of a dot product, from which the zero-point correction is computed."""
    ONES = auto()
    """The constant vector by which ``OPERAND_SUMS`` are a dot product themselves."""


PACKED_OPERANDS = frozenset({StageRole.PACKED_A, StageRole.PACKED_B, StageRole.INTERLEAVED_B})
