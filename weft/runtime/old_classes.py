"""The classes that ``Executable`` replaces: old names, for annotations and ``isinstance``."""

from __future__ import annotations

from collections.abc import Callable

from weft.runtime.executable import Executable


class _Kind(type):
    """A class whose instances are the executables for which ``holds`` is true."""

    holds: Callable[[Executable], bool]

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Executable) and cls.holds(value)


class CompiledModule(metaclass=_Kind):
    """A program that runs here at fixed sizes, compiled or loaded."""

    holds = staticmethod(lambda one: one.runs_here and not one.is_dynamic)


class CompiledModel(metaclass=_Kind):
    """A program of fixed sizes that was compiled for this machine."""

    holds = staticmethod(lambda one: one.runs_here and not one.is_dynamic
                         and one.recompiler is not None)


class DynamicModel(metaclass=_Kind):
    """A model with dynamic shapes that was compiled for this machine."""

    holds = staticmethod(lambda one: one.runs_here and one.is_dynamic
                         and one.recompiler is not None)


class ForeignModel(metaclass=_Kind):
    """A model that was compiled for another machine."""

    holds = staticmethod(lambda one: not one.runs_here)
