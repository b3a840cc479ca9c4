"""The two heuristics of TensorFlow's placer, for regions without a device.

A generator, which has no inputs, joins its consumers if these are on one device; that avoids a
copy. Metadata (the shape of a tensor, a view of it) joins its input.
"""

from __future__ import annotations

from dataclasses import field

from weft.ir import Call, Op
from weft.support.dataclass import dataclass
from weft.transform.placement.constraints import Constraints
from weft.transform.placement.domains import Domains, Origin
from weft.transform.placement.explain import calls_text


@dataclass(slots=True)
class _Region:
    """A class of domains without a device: its calls, and the classes across its borders."""

    calls: list[Call] = field(default_factory=list)
    producers: set[int] = field(default_factory=set)
    consumers: set[int] = field(default_factory=set)
    reads_inputs: bool = False


def apply_heuristics(found: Constraints) -> list[str]:
    """Join free regions of generators and of metadata with their neighbours; returns which."""
    domains = found.domains
    log = []
    # Metadata first: the consumers of a generator may then be on one device.
    for root, region in _free_regions(found).items():
        if len(region.producers) == 1 and region.calls and all(map(_is_metadata, region.calls)):
            producer = next(iter(region.producers))
            if not domains.device(producer).is_unconstrained:
                log.append(_joined(domains, root, producer, region, "metadata, with its input"))
    for root, region in _free_regions(found).items():
        if region.calls and not region.producers and not region.reads_inputs \
                and len(region.consumers) == 1:
            consumer = next(iter(region.consumers))
            if not domains.device(consumer).is_unconstrained:
                log.append(_joined(domains, root, consumer, region,
                                   "a generator, with its consumers"))
    return log


def _joined(domains: Domains, root: int, other: int, region: _Region, why: str) -> str:
    kinds = domains.known(root).common_kinds
    device = domains.device(other)
    if kinds is not None and device.kind not in kinds:
        return f"{calls_text(region.calls)}: free, {device} cannot run it"
    for pin in domains.known(other).pins[:1]:
        domains.constrain(root, device, Origin(f"{pin.origin.text} ({why})", pin.origin.span))
    return f"{calls_text(region.calls)}: {device}, {why}"


def _free_regions(found: Constraints) -> dict[int, _Region]:
    """The classes without a device, by root, with the classes across their borders.

    Classes on equal devices count once, by one of their roots.
    """
    domains = found.domains
    regions: dict[int, _Region] = {}
    for call, domain in found.calls:
        root = domains.root(domain)
        if domains.device(root).is_unconstrained:
            regions.setdefault(root, _Region()).calls.append(call)
    sides: dict[object, int] = {}
    for border in found.all_borders:
        into = domains.root(border.destination)
        if border.source is None:
            if into in regions:
                regions[into].reads_inputs = True
            continue
        out = domains.root(border.source)
        if into in regions:
            regions[into].producers.add(_side(domains, out, sides))
        if out in regions:
            regions[out].consumers.add(_side(domains, into, sides))
    return regions


def _side(domains: Domains, root: int, sides: dict[object, int]) -> int:
    device = domains.device(root)
    return sides.setdefault(root if device.is_unconstrained else device, root)


def _is_metadata(call: Call) -> bool:
    return isinstance(call.op, Op) and (call.op.traits.is_reshape
                                        or call.op.traits.reads_shape_only)
