"""``Domains``: classes of expressions that must be on one device, and the constraints of each.

A domain is a number. ``unify`` joins two domains (union by size, with path halving), ``constrain``
sets the device of a domain. The specifications in a class are merged, as in Relay's
``DeviceDomains`` and TensorFlow's ``ColocationGraph``. A contradiction is an error that names the
two annotations.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field

from weft.ir import ANYWHERE, Span, VirtualDevice
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a constraint: the text of an annotation or operator, and its location."""

    text: str
    span: Span | None = None

    def __str__(self) -> str:
        return self.text if self.span is None else f"{self.text} at {self.span}"


@dataclass(frozen=True, slots=True)
class Pin:
    """``device`` is required by ``origin``."""

    device: VirtualDevice
    origin: Origin


@dataclass(frozen=True, slots=True)
class Kinds:
    """The kinds of devices that an operator runs on."""

    kinds: frozenset[str]
    origin: Origin


@dataclass(slots=True)
class Known:
    """The constraints of a class; ``pins`` have one entry for each distinct specification."""

    device: VirtualDevice = ANYWHERE
    pins: list[Pin] = field(default_factory=list)
    kinds: list[Kinds] = field(default_factory=list)
    groups: dict[str, Origin] = field(default_factory=dict)

    @property
    def common_kinds(self) -> frozenset[str] | None:
        """The kinds of devices that run all operators, or ``None`` for any."""
        return frozenset.intersection(*(one.kinds for one in self.kinds)) if self.kinds else None


class Domains:
    """A union-find over domains, which are numbered from 0.

    With ``soft``, an operator that does not run on the device of its class is no error.
    """

    def __init__(self, *, soft: bool = False) -> None:
        self.soft = soft
        self._parents: list[int] = []
        self._sizes: list[int] = []
        self._known: dict[int, Known] = {}
        self._groups: dict[str, int] = {}

    def fresh(self) -> int:
        """A new domain without constraints."""
        self._parents.append(len(self._parents))
        self._sizes.append(1)
        return len(self._parents) - 1

    def root(self, domain: int) -> int:
        """The representative of a class."""
        parents = self._parents
        while parents[domain] != domain:
            parents[domain] = parents[parents[domain]]
            domain = parents[domain]
        return domain

    def known(self, domain: int) -> Known:
        """The constraints of the class of a domain."""
        return self._known.get(self.root(domain), _NOTHING)

    def constrained(self) -> tuple[int, ...]:
        """The classes with constraints, in the order of their first constraint."""
        return tuple(self._known)

    def device(self, domain: int) -> VirtualDevice:
        """The specification of the class of a domain; ``ANYWHERE`` without constraints."""
        return self.known(domain).device

    def unify(self, first: int, second: int) -> None:
        """Require two domains to be on one device; ``TargetError`` if their pins contradict."""
        first, second = self.root(first), self.root(second)
        if first == second:
            return
        if self._sizes[first] < self._sizes[second]:
            first, second = second, first
        self._parents[second] = first
        self._sizes[first] += self._sizes[second]
        other = self._known.pop(second, None)
        if other is not None:
            mine = self._known.setdefault(first, Known())
            for pin in other.pins:
                _pin(mine, pin)
            mine.groups |= other.groups
            mine.kinds += [one for one in other.kinds if one not in mine.kinds]
            _check_kinds(mine, soft=self.soft)

    def constrain(self, domain: int, device: VirtualDevice, origin: Origin) -> None:
        """Require a domain to be on ``device``."""
        if not device.is_unconstrained:
            known = self._known.setdefault(self.root(domain), Known())
            _pin(known, Pin(device, origin))
            _check_kinds(known, soft=self.soft)

    def runs_on(self, domain: int, kinds: Collection[str], origin: Origin) -> None:
        """Require a domain to be on a device of one of ``kinds``."""
        known = self._known.setdefault(self.root(domain), Known())
        known.kinds.append(Kinds(frozenset(kinds), origin))
        _check_kinds(known, soft=self.soft)

    def colocate(self, domain: int, group: str, origin: Origin) -> None:
        """Require a domain to be on the device of ``group``."""
        first = self._groups.setdefault(group, domain)
        others = self.known(first).groups.get(group)
        self._known.setdefault(self.root(domain), Known()).groups.setdefault(group, origin)
        try:
            self.unify(first, domain)
        except TargetError as error:
            raise TargetError(
                f"cannot colocate {others or origin} and {origin}: {error.what}",
                where=origin.span, expected=error.expected, got=error.got,
                notes=error.notes) from error


_NOTHING = Known()


def _pin(known: Known, pin: Pin) -> None:
    if any(pin.device == one.device for one in known.pins):
        return
    for one in known.pins:
        if not _agree(one.device, pin.device):
            raise TargetError(
                "one region of the program is on two devices", where=pin.origin.span,
                expected=f"{one.device}, by {one.origin}", got=f"{pin.device}, by {pin.origin}",
                help="put a border between them: annotation.on_device(x, device=..) ends a region")
    known.pins.append(pin)
    known.device = known.device.merged(pin.device)


def _agree(first: VirtualDevice, second: VirtualDevice) -> bool:
    pairs: Sequence[tuple[object, object]] = (
        (first.kind, second.kind), (first.index, second.index),
        (first.memory_scope, second.memory_scope))
    return all(a is None or b is None or a == b for a, b in pairs)


def _check_kinds(known: Known, *, soft: bool) -> None:
    """Check that the device of a class runs all its operators, or that some kind of device does."""
    kinds = known.common_kinds
    if kinds is None:
        return
    if not kinds and len(known.kinds) > 1:
        first = known.kinds[0]
        other = next(one for one in known.kinds if not one.kinds & first.kinds) \
            if any(not one.kinds & first.kinds for one in known.kinds) else known.kinds[-1]
        raise TargetError(
            f"cannot colocate {first.origin.text} and {other.origin.text}: no kind of device runs "
            "both", where=other.origin.span,
            notes=[f"{one.origin}: runs on {_listed(one.kinds)}" for one in known.kinds[:8]])
    if not soft and known.device.kind is not None and known.device.kind not in kinds:
        bad = next(one for one in known.kinds if known.device.kind not in one.kinds)
        raise TargetError(
            f"could not satisfy explicit device specification {str(known.device)!r} of "
            f"{bad.origin.text}", where=bad.origin.span,
            expected=f"a device of kind {_listed(bad.kinds)}",
            got=f"{known.device}, by {known.pins[0].origin}")


def _listed(kinds: Collection[str]) -> str:
    return ", ".join(sorted(kinds)) or "no kind of device"
