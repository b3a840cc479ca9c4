"""Devices that tensors are on, as torch has them: ``weft.device("cuda", 1)``.

A device is a field of a tensor's ``Spec``. Which program an operator becomes a part of, and in
which memory its result lies, follows from there alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from weft.runtime.devices.arrays import ARRAY_MEMORIES, ArrayMemory, memory_class
from weft.support.config import config
from weft.support.errors import OptionError, TargetError
from weft.support.suggestion import did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from weft.ir.module import IRModule


class device:
    """A device by its type and number, one object each: ``weft.device("cuda:1")``.

    An object of another library stands for the device that its ``weft_device`` names.
    ``with weft.device("cuda"):`` makes it the device of the tensors that are created inside.
    """

    __slots__ = ("_memories", "index", "numbers", "signatures", "specs", "type")

    _known: ClassVar[dict[tuple[str, int | None], Any]] = {}

    type: str
    index: int | None
    specs: dict[Any, Any]  # of the tensors there
    numbers: dict[str, Any]  # signatures of numbers by their dtype
    signatures: dict[Any, Any]  # of calls that are there whatever their operands are
    _memories: dict[str, ArrayMemory]

    def __new__(cls, type: str | int | device = "cpu", index: int | None = None) -> Self:
        if isinstance(type, device):
            return type  # type: ignore[return-value] - the only class
        key = _parsed(type, index)
        found = cls._known.get(key)
        if found is None:
            found = object.__new__(cls)
            found.type, found.index = key
            found.specs, found.numbers, found.signatures, found._memories = {}, {}, {}, {}
            found = cls._known.setdefault(key, found)
        return found

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        number = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{number})"

    def __reduce__(self) -> Any:
        return device, (self.type, self.index)

    def __enter__(self) -> Self:
        _DEFAULT.enclosing.append(_DEFAULT.device)
        _DEFAULT.device = resolved(self)
        return self

    def __exit__(self, *_: object) -> None:
        _DEFAULT.device = _DEFAULT.enclosing.pop()

    @property
    def memory(self) -> ArrayMemory:
        """The memory of the device; ``WeftError`` (``NoDeviceError``) if it is not there."""
        found = self._memories.get(config.cuda)
        if found is None:
            made = memory_class(self.type)(self.index or 0)
            found = self._memories.setdefault(config.cuda, made)
        return found


def _parsed(type: str | int, index: int | None) -> tuple[str, int | None]:
    """The type and number of a device; ``OptionError`` for something else."""
    if isinstance(type, int) and not isinstance(type, bool):
        return "cuda", type
    kind, colon, number = str(getattr(type, "weft_device", type)).partition(":")
    kinds = tuple(ARRAY_MEMORIES)
    if kind not in kinds:
        raise OptionError("unknown device", got=repr(type), expected=", ".join(kinds),
                          help=did_you_mean(kind, kinds))
    if colon:
        if index is not None or not number.isdecimal():
            raise OptionError("not a device", got=repr(type), expected='such as "cuda:0"')
        index = int(number)
    if index is not None and (not isinstance(index, int) or index < 0):
        raise OptionError("the number of a device is negative or no integer", got=repr(index))
    return kind, index


CPU = device("cpu")


# The devices but the CPU that tensors were asked for.
IN_USE: list[device] = []


class _Default(threading.local):
    """The device of tensors that name none, and those of the blocks around."""

    def __init__(self) -> None:
        self.device = CPU
        self.enclosing: list[device] = []
        self.numbers: dict[str, int] = {}  # what a kind without a number means


_DEFAULT = _Default()


def resolved(value: Any) -> device:
    """The device of a tensor for what a user writes, with a number; ``None``: the default.

    Raises ``OptionError`` for what is no device, and ``WeftError`` for one that is not there.
    """
    if value is None:
        return _DEFAULT.device
    found = device(value)
    if found.type == CPU.type:
        if found.index:
            raise TargetError("the CPUs of this machine are one device", got=str(found),
                              expected="cpu")
        return CPU
    if found.index is None:
        now = _DEFAULT.device
        found = now if now.type == found.type else device(found.type, current_number(found.type))
    if found not in IN_USE:
        found.memory  # noqa: B018 - opens the device
        IN_USE.append(found)
    return found


def current_number(kind: str) -> int:
    """The number of the devices of a kind that are named without one, in this thread."""
    return _DEFAULT.numbers.get(kind, 0)


def set_current_number(kind: str, number: int) -> None:
    """Let a kind without a number mean another device, in this thread."""
    _DEFAULT.numbers[kind] = number


def get_default_device() -> device:
    """The device of tensors that are created without one."""
    return _DEFAULT.device


def set_default_device(device: Any) -> None:
    """Create tensors on ``device`` where none is named, in this thread; ``None``: on the CPU."""
    _DEFAULT.device = CPU if device is None else resolved(device)


def devices() -> list[device]:
    """The devices of this machine that tensors may be on."""
    found = [(kind, number) for kind in ARRAY_MEMORIES
             for number in range(memory_class(kind).count())]
    return [resolved(device(*one)) for one in found]


def copied(value: Any, source: device, target: device) -> Any:
    """An array of ``source`` as one of ``target``."""
    return target.memory.upload(source.memory.download(value))


def on_host(value: Any, where: device) -> np.ndarray:
    """An array of a device as one of the host."""
    found: np.ndarray = value if where is CPU else where.memory.download(value)
    return found


def compiled(where: device, module: IRModule, **options: Any) -> Callable[..., Any]:
    """A program for a device, which takes and gives arrays of its memory."""
    from weft.compiler import api  # not before a tensor is computed

    if where is CPU:
        return api.compile_recorded(module, **options)
    from weft.target import TARGET_KINDS

    memory = where.memory
    if memory.target != CPU.type:
        options["target"] = TARGET_KINDS.get(memory.target).fitting(memory.capability)
    return Placed(api.compile(module, **options), memory)


class Placed:
    """A program that runs on a device; its results are a tuple or a list."""

    __slots__ = ("memory", "module")

    def __init__(self, module: Any, memory: ArrayMemory) -> None:
        self.module = module
        self.memory = memory

    def __call__(self, *values: Any) -> Sequence[Any]:
        return self.memory.run(self.module, values)

    def keeps(self, state: str) -> bool:
        """Whether a state is in the memory of the device, not in that of the host."""
        return self.memory.keeps(self.module, state)

    def share_state(self, arrays: Any) -> None:
        """Keep states in these arrays of the device."""
        self.module.share_state(self.memory.states(arrays))
