"""The choice of an algorithm for a convolution, with layouts, tiles and estimated seconds.

Legalisation takes the fastest candidate. The layout pass weighs their estimates against the changes
of layout that each needs around the convolution, and records in ``ConvAttrs.algorithm`` which one
it took. The strategy schedules the recorded one, or decides among those that run in the layouts of
the call.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from weft.ir import Call, Type
from weft.op.nn.conv import ConvAlgorithm
from weft.strategy.cpu.convolution.offers import offer_direct, offer_narrow_dot_product
from weft.strategy.cpu.convolution.plan import ConvPlan, Offer
from weft.strategy.cpu.convolution.problem import ConvProblem
from weft.strategy.cpu.winograd.decide import offer_winograd
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.target import CpuTarget


@dataclass(frozen=True, slots=True)
class ConvOffers:
    """The algorithms that can run a convolution, and those that cannot, with reasons."""

    candidates: tuple[Candidate[ConvPlan], ...]
    rejected: tuple[Rejected, ...]

    @staticmethod
    def of(offers: Iterable[Offer]) -> ConvOffers:
        found = tuple(offers)
        return ConvOffers(tuple(o for o in found if isinstance(o, Candidate)),
                          tuple(o for o in found if isinstance(o, Rejected)))


def decide_convolution(
    call: Call, target: CpuTarget, types: Sequence[Type | None] | None = None, *,
    winograd: bool = True, keep_layouts: bool = False,
) -> Decision[ConvPlan] | None:
    """The fastest algorithm for a typed convolution; ``None`` if a size is not fixed.

    With ``keep_layouts`` only those that need no change of layout. ``types`` replaces the types of
    the arguments while these are being rewritten; ``winograd`` is the option of that name.
    """
    problem = ConvProblem.of(call, types)
    if problem is None:
        return None
    offers = conv_offers(problem, target, winograd=winograd, keep_layouts=keep_layouts)
    return replace(choose(offers.candidates, offers.rejected), sizes=problem.assumed_sizes)


@functools.lru_cache(maxsize=1024)
def conv_offers(
    problem: ConvProblem, target: CpuTarget, *, winograd: bool = True, keep_layouts: bool = False
) -> ConvOffers:
    """All algorithms, in the order in which the first of equals is taken."""
    if problem.attrs.algorithm is not None:
        return ConvOffers.of(_recorded(problem, target))
    if keep_layouts or not (problem.is_unblocked or problem.is_channels_last):
        return ConvOffers.of(_in_own_layouts(problem, target))
    return ConvOffers.of(_in_any_layout(problem, target, winograd=winograd))


def _in_any_layout(problem: ConvProblem, target: CpuTarget, *, winograd: bool) -> Iterator[Offer]:
    """Offers for a convolution whose layouts and operand dtypes may change.

    Narrow floats are converted to float32 ahead: no CPU adds products of 16-bit floats in 16 bits
    as fast as in float32. Two algorithms take them as they are: a depthwise convolution, which
    reads each element only a few times, and a dot product instruction.
    """
    upcasts = problem.has_narrow_floats and not problem.shape.is_depthwise
    base = problem.in_float32() if upcasts else problem
    offers = [*(offer_winograd(base, target) if winograd else _no_winograd()),
              *_without_padded_copies(list(offer_direct(base, target)))]
    if not upcasts:
        yield from offers
        return
    yield from offer_narrow_dot_product(problem, target)
    for offer in offers:
        if isinstance(offer, Candidate):
            yield replace(offer, plan=replace(offer.plan, upcasts=True))
        elif offer.algorithm != ConvAlgorithm.DOT_PRODUCT:  # which is told of above
            yield offer


def _no_winograd() -> Iterator[Offer]:
    for algorithm in (ConvAlgorithm.WINOGRAD_F2, ConvAlgorithm.WINOGRAD_F4):
        yield Rejected(algorithm, "the option winograd is off")


def _without_padded_copies(offers: Sequence[Offer]) -> Iterator[Offer]:
    """Where depthwise blocks apply, the unblocked direct algorithm does not compete with them: its
    estimate leaves out the padded copy of the data, which takes as long as so few multiply-adds.
    """
    has_blocks = any(isinstance(offer, Candidate)
                     and offer.plan.algorithm is ConvAlgorithm.DEPTHWISE_BLOCKED
                     for offer in offers)
    for offer in offers:
        is_direct = offer.algorithm == ConvAlgorithm.DIRECT_UNBLOCKED
        if has_blocks and is_direct and isinstance(offer, Candidate):
            yield Rejected(offer.algorithm, "it copies the data, which depthwise_blocked does not",
                           offer.seconds)
        else:
            yield offer


def _in_own_layouts(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    for offer in offer_direct(problem, target):
        if isinstance(offer, Rejected) or offer.plan.keeps_layouts(problem):
            yield offer
        else:
            yield Rejected(offer.algorithm, "it needs another layout", offer.seconds)


def _recorded(problem: ConvProblem, target: CpuTarget) -> Iterator[Offer]:
    """The algorithm that the layout pass took, and the default schedule for measurements."""
    wanted = (problem.attrs.algorithm, ConvAlgorithm.GENERIC)
    for offer in _in_own_layouts(problem, target):
        if isinstance(offer, Candidate) and offer.plan.algorithm not in wanted:
            yield Rejected(offer.algorithm, f"the layout pass took {wanted[0]}", offer.seconds)
        else:
            yield offer


def _decide_in_kernel(call: Call, target: CpuTarget) -> Decision[ConvPlan] | None:
    return decide_convolution(call, target, keep_layouts=True)


@decides("nn.conv1d", target="cpu", in_kernel=_decide_in_kernel)
@decides("nn.conv2d", target="cpu", in_kernel=_decide_in_kernel)
@decides("nn.conv3d", target="cpu", in_kernel=_decide_in_kernel)
def _decide(call: Call, target: CpuTarget) -> Decision[ConvPlan] | None:
    return decide_convolution(call, target, winograd=config.winograd)
