"""``Target``: what code is generated for, as a value; and the kinds of targets.

A target is a frozen record of one kind (``cpu``, a user's own). Two targets are equal if they give
the same code, so a target serves as a cache key. Its text form starts with a name of its kind and
parses back: ``Target.of(str(target)) == target``.

A kind is a subclass of ``Target`` that is registered with ``register_target_kind``. Its back end
(``weft.codegen.backend``) says how code is generated, its strategies (``weft.strategy``) how
operators run.
"""

from __future__ import annotations

import abc
import shlex
from typing import ClassVar, Self, TypeVar

from weft.support.errors import RegistryError, TargetError
from weft.support.registry import Registry
from weft.support.suggestion import did_you_mean


class Target(abc.ABC):
    """What code is generated for. Subclasses are frozen dataclasses."""

    __slots__ = ()

    kind: ClassVar[str]
    # The first words of the text forms that ``parse`` reads; ``kind`` itself is one of them.
    names: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def __str__(self) -> str:
        """The text form, which ``parse`` reads. Equal targets have equal texts."""

    @classmethod
    @abc.abstractmethod
    def parse(cls, text: str) -> Self:
        """Read a text form, whose first word is one of ``names``; ``TargetError`` if unknown."""

    @classmethod
    def fitting(cls, capability: tuple[int, int] | None) -> Self:  # noqa: ARG003 - of most, nothing
        """The target of the kind for a device of this capability, as its runtime states it."""
        return cls.of(cls.kind)

    @classmethod
    def of(cls, value: Target | str | None) -> Self:
        """A target, its text (``"cpu"``, ``"llvm -mcpu=haswell"``), or the host CPU for ``None``.

        Called on a subclass, the result is of that kind. Raises ``TargetError`` for an unknown
        text, for other values, and for a target of another kind.
        """
        text = "cpu" if value is None else value
        target = _read(text) if isinstance(text, str) else text
        if not isinstance(target, Target):
            raise TargetError("not a target", got=repr(value), expected="a Target or its text")
        if not isinstance(target, cls):
            raise TargetError(f"the target is of kind {target.kind!r}", got=target,
                              expected=f"a target of kind {cls.kind!r}")
        return target


TARGET_KINDS: Registry[type[Target]] = Registry("target kind")
T = TypeVar("T", bound=Target)


def register_target_kind(kind: type[T]) -> type[T]:
    """Make the texts of a subclass of ``Target`` known to ``Target.of``; usable as a decorator.

    Raises ``RegistryError`` for a class without ``kind``, a kind that is registered already, and a
    name of another kind.
    """
    if not getattr(kind, "kind", ""):
        raise RegistryError(f"the target kind {kind.__name__} does not define kind",
                            help="add: kind: ClassVar[str] = ...")
    for other in TARGET_KINDS:
        used = {other, *TARGET_KINDS.get(other).names} & {kind.kind, *kind.names}
        if used and other != kind.kind:
            raise RegistryError(f"target kind {kind.kind!r} uses a name of target kind {other!r}",
                                got=", ".join(sorted(used)))
    TARGET_KINDS.register(kind.kind, kind)
    return kind


def _read(text: str) -> Target:
    try:
        words = shlex.split(text)
    except ValueError as error:  # unbalanced quotes
        raise TargetError(f"unknown target {text!r}", got=error) from error
    for kind in map(TARGET_KINDS.get, TARGET_KINDS):
        if words and words[0] in (kind.kind, *kind.names):
            return kind.parse(text)
    names = [name for k in TARGET_KINDS for name in (k, *TARGET_KINDS.get(k).names)]
    raise TargetError(f"unknown target {text!r}",
                      expected=f"a text that starts with one of {', '.join(names)}",
                      help=did_you_mean(words[0], names) if words else None)
