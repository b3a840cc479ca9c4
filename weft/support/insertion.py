"""Where a user's pass joins a pipeline: a phase, and before or after a pass named there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Insertion(Generic[T]):
    """``item`` (a pass) with its position in a pipeline; see ``pass_at``."""

    item: T
    phase: str | None = None
    after: str | None = None
    before: str | None = None

    @property
    def anchor(self) -> str | None:
        """The pass that the position names."""
        return self.before if self.after is None else self.after

    def position(self) -> str:
        """The position in words: ``optimized, after fold_constant``; empty for the default."""
        side = f"after {self.after}" if self.after else f"before {self.before}"
        return ", ".join(filter(None, (self.phase, side if self.anchor else None)))


def pass_at(item: T, *, phase: str | None = None, after: str | None = None,
            before: str | None = None) -> Insertion[T]:
    """A pass at a position: ``weft.compile(model, passes=[pass_at(MyPass(), after="fuse_ops")])``.

    ``after`` means after the last pass of that name in the phase, ``before`` before the first one.
    With ``phase`` alone the pass runs at the end of the phase. ``phase`` may be left out where only
    one phase has the named pass. Raises ``OptionError`` where both ``after`` and ``before`` are
    given, and for values that are not text; unknown names are reported when a pipeline is made.
    """
    for option, value in (("phase", phase), ("after", after), ("before", before)):
        if value is not None and not isinstance(value, str):
            name = getattr(value, "name", None)
            raise OptionError(f"{option} is not a name", got=repr(value), expected="a text",
                              help=f"write {option}={name!r}" if isinstance(name, str) else None)
    if after is not None and before is not None:
        raise OptionError("after and before exclude each other",
                          got=f"after={after!r}, before={before!r}")
    return Insertion(item, phase, after, before)


def as_insertions(
    items: Iterable[T | Insertion[T]], check: Callable[[object], None], what: str
) -> tuple[Insertion[T], ...]:
    """Each item with its position; ``check`` raises for an item of another type.

    ``what`` is the argument's name in errors. Raises ``OptionError`` for a value without items.
    """
    if isinstance(items, (str, bytes)) or not isinstance(items, Iterable):
        raise OptionError(f"{what} is not a list", got=repr(items), expected=f"{what}=[...]")
    made = tuple(i if isinstance(i, Insertion) else Insertion(i) for i in items)
    for insertion in made:
        check(insertion.item)
    return made


def inserted(
    items: Sequence[T], insertions: Iterable[Insertion[T]], name_of: Callable[[T], str], what: str,
) -> tuple[T, ...]:
    """``items`` with the insertions; those with one position keep their order.

    An insertion without ``after`` and ``before`` goes to the end. A later insertion may name an
    earlier one. ``what`` says in errors where the names were looked for (``the phase optimized``).
    """
    made: list[tuple[T, Insertion[T] | None]] = [(item, None) for item in items]
    for insertion in insertions:
        made.insert(_index(made, insertion, name_of, what), (insertion.item, insertion))
    return tuple(item for item, _ in made)


def _index(made: Sequence[tuple[T, Insertion[T] | None]], insertion: Insertion[T],
           name_of: Callable[[T], str], what: str) -> int:
    if insertion.anchor is None:
        return len(made)
    at = [n for n, (item, _) in enumerate(made) if name_of(item) == insertion.anchor]
    if not at:
        raise unknown_anchor(insertion, (name_of(item) for item, _ in made), what)
    if insertion.before is not None:
        return at[0]
    index = at[-1] + 1
    while index < len(made) and _is_after(made[index][1], insertion.after):
        index += 1
    return index


def _is_after(other: Insertion[T] | None, anchor: str | None) -> bool:
    return other is not None and other.after == anchor


def unknown_anchor(insertion: Insertion[T], names: Iterable[str], what: str) -> OptionError:
    """The error for a position that names an unknown pass."""
    known = list(dict.fromkeys(names))
    return OptionError(
        f"unknown pass {insertion.anchor!r} in {what}", expected=", ".join(known) or "no passes",
        help=did_you_mean(insertion.anchor or "", known))
