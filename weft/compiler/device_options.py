"""The options ``devices``, ``placement`` and ``soft_placement`` of a compilation, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weft.codegen import backend_of
from weft.ir.virtual_device import VirtualDevice
from weft.runtime.device import HOST, Device
from weft.runtime.devices.sim.description import SIM, SimDevice
from weft.support.errors import OptionError, TargetError
from weft.support.suggestion import did_you_mean
from weft.target import Target

# A device of a program: a simulated one with its properties, the host, or the GPU of the target.
DeviceSpec: TypeAlias = "SimDevice | Device"
DevicesLike: TypeAlias = "Sequence[SimDevice | Device | str] | None"
# "cost", "profile", or devices by the names of tensors.
PlacementLike: TypeAlias = "str | Mapping[str, SimDevice | Device | str] | None"
PlacementSpec: TypeAlias = "str | tuple[tuple[str, str], ...] | None"

BY_COST, BY_PROFILE = "cost", "profile"
_EXPECTED = 'weft.SimDevice(0), "sim:1", "cpu", or "cuda" with a target for GPUs'


def devices_of(value: DevicesLike, target: Target) -> tuple[DeviceSpec, ...]:
    """The devices of a program for ``target``; none: that of the target.

    Raises ``OptionError`` for something else than a sequence of different devices, ``TargetError``
    for devices that cannot run parts of one program.
    """
    if value is None:
        return ()
    if isinstance(value, (str, SimDevice, Device)) or not isinstance(value, Sequence) or not value:
        raise OptionError("devices cannot be used", got=repr(value),
                          expected=f"a list of devices: {_EXPECTED}")
    found = tuple(map(_device_of, value))
    named = [device_of(one) for one in found]
    repeated = next((one for one in named if named.count(one) > 1), None)
    if repeated is not None:
        raise OptionError(f"devices names {repeated} twice")
    _check_together(named, target)
    return found


def device_of(spec: DeviceSpec) -> Device:
    """The device, as steps name it."""
    return spec.device if isinstance(spec, SimDevice) else spec


def placement_of(value: PlacementLike) -> PlacementSpec:
    """The option ``placement``, checked. Raises ``OptionError`` and ``TargetError``."""
    if value is None or (isinstance(value, str) and value in (BY_COST, BY_PROFILE)):
        return value
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return tuple((name, str(VirtualDevice.parse(str(one)))) for name, one in value.items())
    raise OptionError("placement cannot be used", got=repr(value),
                      expected=f'"{BY_COST}", "{BY_PROFILE}", or devices by the names of tensors: '
                               '{"layer3.0.relu": "sim:1"}',
                      help=did_you_mean(str(value), (BY_COST, BY_PROFILE)))


def _device_of(value: object) -> DeviceSpec:
    if isinstance(value, (SimDevice, Device)):
        return SimDevice(value.number) if isinstance(value, Device) and value.kind == SIM else value
    if not isinstance(value, str):
        raise OptionError("not a device", got=repr(value), expected=_EXPECTED)
    spec = VirtualDevice.parse(value)
    if spec.kind is None or spec.memory_scope is not None:
        raise OptionError("not a device", got=repr(value), expected=_EXPECTED)
    made = Device(spec.kind, spec.index or 0)
    return SimDevice(made.number) if made.kind == SIM else made


def _check_together(devices: Sequence[Device], target: Target) -> None:
    backend = backend_of(target)
    for device in devices:
        if device.kind == HOST.kind and device != HOST:
            raise TargetError(f"no device {device}: the CPUs of this machine are one device",
                              expected="cpu:0, or simulated devices: sim:0, sim:1")
        if device.kind == backend.device.kind and device != backend.device:
            raise TargetError(f"no device {device}: a program runs on one device of its target",
                              expected=backend.device)
    backend.on_devices(devices)  # raises for others
