"""One way to run an operator on a target, and what its schedule gets to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from weft import te
from weft.ir.attrs import Attrs
from weft.ir.expr import Call
from weft.support.errors import InternalError
from weft.target import Target

A = TypeVar("A", bound=Attrs)
T_co = TypeVar("T_co", bound=Target, covariant=True)


def attrs_of(call: Call, kind: type[A]) -> A:
    """The attributes of a call, known to be of one record type."""
    if not isinstance(call.attrs, kind):
        raise InternalError(f"a strategy for {kind.__name__} got {type(call.attrs).__name__}",
                            where=call.span)
    return call.attrs


def compute_of(tensor: te.Tensor) -> te.ComputeOp:
    """The compute that defines a tensor; a strategy schedules nothing else."""
    if not isinstance(tensor.op, te.ComputeOp):
        raise InternalError(f"{tensor.name} is not defined by a compute")
    return tensor.op


@dataclass(frozen=True, slots=True)
class ScheduleContext(Generic[T_co]):
    """A group of fused operators as tensor expressions, ready to be scheduled.

    ``anchor`` is the result of the operator that the implementation belongs to; ``outputs`` are
    what the kernel writes (the anchor itself where nothing follows it).
    """

    schedule: te.Schedule
    anchor: te.Tensor
    outputs: tuple[te.Tensor, ...]
    call: Call
    target: T_co

    @property
    def output(self) -> te.Tensor:
        return self.outputs[0]


def no_variants() -> Iterable[Implementation]:
    """Of an implementation that has nothing to choose, or whose choice is never in doubt."""
    return ()


@dataclass(frozen=True, slots=True)
class Implementation:
    """``compute`` replaces the operator's own (same signature); ``cost`` is seconds, estimated.

    Implementations are yielded by a strategy only where they apply; the cheapest one is taken,
    the first of equals. ``variants`` are the same way with other parameters (tiles, blocks) than
    the model chose; only measuring looks at them, and records may prefer one.
    """

    name: str
    schedule: Callable[[ScheduleContext[Any]], None]
    compute: Callable[..., Any] | None = None
    cost: float = 0.0
    variants: Callable[[], Iterable[Implementation]] = no_variants
