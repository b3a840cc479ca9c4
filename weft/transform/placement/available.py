"""The devices that a program may run on, and the choice of one that matches a specification."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from weft.ir.virtual_device import ANYWHERE, VirtualDevice
from weft.support.errors import TargetError
from weft.support.fallback import Fallback, report
from weft.transform.placement.domains import Known, Origin


class AvailableDevices:
    """Devices by name, the default first; without devices, specifications are not resolved.

    With ``soft``, as with TensorFlow's ``allow_soft_placement``, a specification that no device
    matches means the first device of its kind, or the default device.
    """

    def __init__(self, names: Sequence[str], *, soft: bool = False) -> None:
        self.devices = tuple(map(VirtualDevice.parse, names))
        for name, device in zip(names, self.devices, strict=True):
            if device.kind is None or device.index is None:
                raise TargetError("a device to run on needs a kind and a number", got=repr(name),
                                  expected='such as "sim:0" or "cpu:0"')
        self.soft = soft

    def first_of(self, kinds: Collection[str] | None) -> VirtualDevice | None:
        """The first device of one of ``kinds`` (``None``: any)."""
        return next((one for one in self.devices if kinds is None or one.kind in kinds), None)

    def resolved(self, known: Known) -> VirtualDevice:
        """The device of a class of expressions; ``ANYWHERE`` for an unconstrained class.

        Raises ``TargetError`` if no device matches its pins and runs its operators.
        """
        wanted, kinds = known.device, known.common_kinds
        if kinds is not None and not kinds:
            raise self._unsupported(known)
        if not self.devices or (wanted.is_unconstrained and kinds is None):
            return wanted
        for one in self.devices:
            if (kinds is None or one.kind in kinds) and _meets(one, wanted):
                return one.merged(VirtualDevice(memory_scope=wanted.memory_scope))
        same_kind = None if wanted.kind is None else frozenset({wanted.kind})
        default = self.first_of(kinds)
        if same_kind is not None and (kinds is None or same_kind <= kinds):
            default = self.first_of(same_kind) or default
        if default is None:
            raise self._unsupported(known)
        if self.soft and not wanted.is_unconstrained:
            report(Fallback(f"what names {str(wanted)!r} runs on {default}",
                            f"the devices are {self._listed()}", "that of another device",
                            "name one of these devices", listed_only=True))
        if wanted.is_unconstrained or self.soft:
            return default
        origin: Origin = known.pins[0].origin
        raise TargetError(
            f"could not satisfy explicit device specification {str(wanted)!r}", where=origin.span,
            expected=f"one of {self._listed()}", got=str(origin),
            help="soft_placement=True takes another device instead")

    def is_soft(self, known: Known) -> bool:
        """Whether a class is on the default device because no device matches its pins."""
        wanted = known.device
        return bool(self.devices) and not wanted.is_unconstrained \
            and not any(_meets(one, wanted) for one in self.devices)

    def _unsupported(self, known: Known) -> TargetError:
        first = known.kinds[0]
        return TargetError(
            f"no device of the program runs {first.origin.text}", where=first.origin.span,
            expected=f"a device of kind {', '.join(sorted(known.common_kinds or ())) or 'none'}",
            got=self._listed() or None)

    def _listed(self) -> str:
        return ", ".join(map(str, self.devices))


def _meets(device: VirtualDevice, wanted: VirtualDevice) -> bool:
    return wanted.kind in (None, device.kind) and wanted.index in (None, device.index)


def name_of(device: VirtualDevice) -> str:
    """The name of a device in logs."""
    return "free" if device == ANYWHERE else str(device)
