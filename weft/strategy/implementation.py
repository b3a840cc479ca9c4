"""``Implementation``: one way to run a call on a target, and the context of its schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from weft import te
from weft.ir import Attrs, Call
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, LoweringError
from weft.target import Target

if TYPE_CHECKING:
    from weft.strategy.space import Space

A = TypeVar("A", bound=Attrs)
T_co = TypeVar("T_co", bound=Target, covariant=True)


def attrs_of(call: Call, kind: type[A]) -> A:
    """The attributes of a call; raises ``InternalError`` unless they are of type ``kind``."""
    if not isinstance(call.attrs, kind):
        raise InternalError(f"a strategy for {kind.__name__} got {type(call.attrs).__name__}",
                            where=call.span)
    return call.attrs


def compute_of(tensor: te.Tensor) -> te.ComputeOp:
    """The compute that defines a tensor; raises ``InternalError`` for a placeholder or extern."""
    if not isinstance(tensor.op, te.ComputeOp):
        raise InternalError(f"{tensor.name} is not defined by a compute")
    return tensor.op


@dataclass(frozen=True, slots=True)
class ScheduleContext(Generic[T_co]):
    """A group of fused operators as tensor expressions, ready to be scheduled.

    ``anchor`` is the result of ``call``, the operator that the implementation belongs to;
    ``outputs`` are the tensors that the kernel writes (the anchor itself if it is the last).
    ``knobs`` are values that a default schedule takes instead of its own choice.
    """

    schedule: te.Schedule
    anchor: te.Tensor
    outputs: tuple[te.Tensor, ...]
    call: Call
    target: T_co
    knobs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> te.Tensor:
        return self.outputs[0]


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to run a call; a strategy yields it only where it applies.

    ``compute`` replaces the operator's own and has its signature. ``seconds`` is the estimated time
    of one call on one core, ``None`` if the author gave no estimate; ``selection`` says how
    implementations are chosen by it. ``space`` gives the knobs of the algorithm (tiles, blocks,
    orders): ``weft tune`` searches among their values, and a record may prefer others than the cost
    model chose. With ``is_fallback`` it runs only calls without another candidate.

    Raises ``LoweringError`` if ``seconds`` is negative or not finite.
    """

    name: str
    schedule: Callable[[ScheduleContext[Any]], None]
    compute: Callable[..., Any] | None = None
    seconds: float | None = None
    space: Callable[[], Space] | None = None
    is_fallback: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and not (math.isfinite(self.seconds) and self.seconds >= 0):
            raise LoweringError(f"invalid estimate of the implementation {self.name}",
                                expected="seconds, or None for no estimate",
                                got=repr(self.seconds))
