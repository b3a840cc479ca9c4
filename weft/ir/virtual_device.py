"""``VirtualDevice``: the device where the program wants an expression to be evaluated.

It consists of a kind of device, an index among the devices of that kind, and a memory scope on the
device (Relay's virtual device). A part that is ``None`` is unconstrained, so several annotations of
one expression can be merged (TensorFlow's ``MergeDevNames``).
"""

from __future__ import annotations

import functools
import re
from typing import Any

from weft.runtime.device import Device
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError

_EXPECTED = '"kind:index/memory_scope", each part optional: "sim:1", "cuda", "cpu:0/global"'
_TEXT = re.compile(
    r"(?P<kind>[A-Za-z_]\w*)?(?::(?P<index>\d+|\*))?(?:/(?P<scope>[A-Za-z_][\w.]*))?")
_JOB = re.compile(r"(job|replica|task|device|cpu|gpu):", re.IGNORECASE)
# weft runs in one process, which TensorFlow calls this.
_LOCAL = {"job": "localhost", "replica": "0", "task": "0"}
_KINDS_OF_TENSORFLOW = {"gpu": "cuda", "cpu": "cpu"}


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """``kind`` of device, ``index`` among its kind, ``memory_scope``; ``None`` means any."""

    kind: str | None = None
    index: int | None = None
    memory_scope: str | None = None

    @staticmethod
    def parse(text: str) -> VirtualDevice:
        """The specification in ``text``, as ``str`` writes it, or in TensorFlow's form.

        ``""`` is the unconstrained one. ``/job:localhost/replica:0/task:0/device:GPU:1`` and
        ``/gpu:1`` are ``cuda:1``. Raises ``TargetError`` for other texts and other jobs.
        """
        return _parsed(text)

    @staticmethod
    def of(device: Device) -> VirtualDevice:
        """The specification that matches ``device`` alone."""
        return VirtualDevice(device.kind, device.number)

    @property
    def is_unconstrained(self) -> bool:
        """Whether every device and memory scope matches it."""
        return self == ANYWHERE

    def merged(self, other: VirtualDevice) -> VirtualDevice:
        """The specification with the constraints of both; ``TargetError`` if they contradict."""
        return VirtualDevice(self._common("kind", other), self._common("index", other),
                             self._common("memory_scope", other))

    def _common(self, part: str, other: VirtualDevice) -> Any:
        mine, theirs = getattr(self, part), getattr(other, part)
        if mine is not None and theirs is not None and mine != theirs:
            raise TargetError("device specifications contradict one another",
                              expected=str(self), got=str(other))
        return theirs if mine is None else mine

    def matches(self, device: Device) -> bool:
        """Whether ``device`` satisfies the specification."""
        return self.kind in (None, device.kind) and self.index in (None, device.number)

    def __str__(self) -> str:
        index = "" if self.index is None else f":{self.index}"
        scope = "" if self.memory_scope is None else f"/{self.memory_scope}"
        return f"{self.kind or ''}{index}{scope}"


ANYWHERE = VirtualDevice()
# The expected value in errors about attributes that hold the text of a device.
DEVICE_TEXT = 'the name of a device, such as "sim:1", "cuda" or "cpu:0/global"'


def is_device_text(text: str) -> bool:
    """Whether ``VirtualDevice.parse`` can read ``text``."""
    try:
        _parsed(text)
    except TargetError:
        return False
    return True


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> VirtualDevice:
    if text.startswith("/") and _JOB.match(text, 1):
        return _of_tensorflow(text)
    found = _TEXT.fullmatch(text)
    if found is None:
        raise TargetError("unreadable name of a device", got=repr(text), expected=_EXPECTED)
    index = found["index"]
    return VirtualDevice(found["kind"], None if index in (None, "*") else int(index),
                         found["scope"])


def _of_tensorflow(text: str) -> VirtualDevice:
    """A full or partial device name of TensorFlow; a later part overrides an earlier one."""
    result = ANYWHERE
    for part in text[1:].split("/"):
        name, _, value = part.partition(":")
        name = name.lower()
        if name in _LOCAL and value:
            if value not in (_LOCAL[name], "*"):
                raise TargetError(f"no {name} {value!r}: a program runs in one process", got=text,
                                  expected=f"/{name}:{_LOCAL[name]}, or none")
            continue
        if name == "device":
            name, _, value = value.partition(":")
            name = name.lower()
        kind = None if name == "*" else _KINDS_OF_TENSORFLOW.get(name, name)
        if (kind is not None and not kind.isidentifier()) or not re.fullmatch(r"(\d+|\*)?", value):
            raise TargetError("unreadable name of a device", got=repr(text),
                              expected="/job:localhost/replica:0/task:0/device:KIND:INDEX")
        result = result.merged(VirtualDevice(kind, int(value) if value.isdigit() else None))
    return result
