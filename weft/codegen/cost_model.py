"""``CostModel``: how fast a target is, as passes, selection and placement ask for it.

A back end names the class of its kind (``Backend.cost_model_class``); ``Backend.cost_model`` makes
it for a target. All times are seconds of one call on one core, or on the whole device where a
kernel uses all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from weft.ir import Call, DType, Op, TensorType, TupleType, Type, typical_size
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.target import Target

if TYPE_CHECKING:
    from weft.tir import PrimFunc


_SHOWN_SHARE, _SHOWN = 0.04, 4  # of the time of a kernel; parts below it are left out
_MULTIPLY_ADDS = "multiply-adds"
_MOST_USEFUL = 0.99  # of the multiply-adds: counts of loops with guards are exact to a percent


@dataclass(frozen=True, slots=True)
class CallWork:
    """What the types of a call say about its work.

    ``moved_bytes`` are those of all operands and results, ``elements`` and ``itemsize`` those of
    the largest of them. ``is_expensive`` is the trait of the operator (``OpTraits.is_expensive``).
    """

    moved_bytes: int
    elements: int
    itemsize: int
    is_expensive: bool


@dataclass(frozen=True, slots=True)
class Prediction:
    """The seconds of one call of a kernel, and those that each thing it does would take alone.

    ``multiply_adds`` are those that it executes, remainders of tiles and padding included.
    """

    seconds: float
    spent: Mapping[str, float]
    multiply_adds: float = 0.0

    def text(self, flops: object = 0) -> str:
        """What takes the most, with its share of the time: ``multiply-adds 92 %, loads 5 %``.

        ``flops`` are the operations that the kernel has to do. Where it executes more, but not so
        many that they are of another kind, the difference is what remainders and padding cost.
        """
        spent = dict(self.spent)
        useful = flops / 2 / self.multiply_adds if isinstance(flops, int) and self.multiply_adds \
            else 1.0
        if _MOST_USEFUL / 2 < useful < _MOST_USEFUL and _MULTIPLY_ADDS in spent:
            spent["remainders"] = (1 - useful) * spent[_MULTIPLY_ADDS]
            spent[_MULTIPLY_ADDS] *= useful
        shares = sorted(((s / self.seconds, what) for what, s in spent.items()), reverse=True)
        shown = [f"{what} {min(share, 1) * 100:.0f} %"
                 for share, what in shares if share >= _SHOWN_SHARE]
        return ", ".join(shown[:_SHOWN])


class CostModel:
    """The neutral model, for a kind of target that has none, and the base of all others.

    Its rates are those of one core that computes and reads memory at a modest rate. It has no
    instructions for products of bytes, and changes of layout are free, so that the layouts of
    operators decide alone. A subclass replaces what it knows better.
    """

    # Rates and overhead of a kernel that has no better estimate.
    flops_per_second: float = 2e10
    bytes_per_second: float = 1e10
    launch_seconds: float = 2e-7
    # Operations per element of an expensive operator: a polynomial.
    expensive_operations: int = 20
    # Elements of the longest rows that a private cache holds between two reads. Reductions along
    # longer rows are not fused, because each is worth its own threads.
    longest_row: int = 1 << 16
    # Scalar operations from which on a kernel of symbolic sizes runs on several threads; ``None``:
    # its schedule decides alone.
    parallel_from: int | None = None

    def __init__(self, target: Target | None = None) -> None:
        """``target`` decides nothing in the neutral model."""

    def kernel_seconds(self, flops: float, moved_bytes: float) -> float:
        """The roofline of a kernel and its launch (Williams et al., "Roofline", 2009)."""
        return self.launch_seconds + max(flops / self.flops_per_second,
                                         moved_bytes / self.bytes_per_second)

    def work_seconds(self, flops: float, moved_bytes: float, itemsize: int) -> float:  # noqa: ARG002
        """Seconds of so many operations on elements of ``itemsize`` bytes, or of the transfers."""
        return self.kernel_seconds(flops, moved_bytes)

    def call_seconds(self, call: Call) -> float:
        """Seconds of a call by the default schedule, estimated from its types alone."""
        work = call_work(call)
        each = self.expensive_operations if work.is_expensive else 1
        return self.kernel_seconds(work.elements * each, work.moved_bytes)

    def conversion_seconds(self, type_: TensorType) -> float:  # noqa: ARG002
        """Seconds to read a tensor of fixed sizes and to store it in another layout."""
        return 0.0

    def multiplies_bytes(self, left: DType, right: DType) -> bool:  # noqa: ARG002
        """Whether an instruction multiplies these 8-bit types and adds sums of 32 bits."""
        return False

    def predict(self, func: PrimFunc) -> Prediction | None:  # noqa: ARG002
        """The time of a lowered kernel, warm and alone; ``None`` if the model cannot tell."""
        return None

    def static_launches(self, func: PrimFunc) -> list[dict[str, str]]:
        """What a lowered kernel uses, a row of texts by column for each of its launches.

        Raises ``TargetError`` for a kind of target that does not tell, ``CodegenError`` without the
        tools of the target.
        """
        raise TargetError("a static profile of kernels is not supported for this target",
                          where=func.name, help="use --target cuda, or measure without --static")


NEUTRAL = CostModel()


def call_work(call: Call) -> CallWork:
    """The work of a typed call; symbolic dimensions count as their typical size."""
    tensors = [t for x in (call, *call.args) for t in tensor_types(x.checked_type)]
    return CallWork(
        sum(typical_elements(t) * t.dtype.itemsize for t in tensors),
        max(map(typical_elements, tensors), default=0),
        max((t.dtype.itemsize for t in tensors), default=1),
        isinstance(call.op, Op) and call.op.traits.is_expensive)


def tensor_types(type_: Type | None) -> Iterator[TensorType]:
    """The tensors of a type, in order."""
    if isinstance(type_, TensorType):
        yield type_
    elif isinstance(type_, TupleType):
        for field in type_.fields:
            yield from tensor_types(field)


def typical_elements(type_: TensorType) -> int:
    """The number of elements; symbolic dimensions count as their typical size."""
    return math.prod(map(typical_size, type_.shape))
