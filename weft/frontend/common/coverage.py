"""Reports of all that a model uses and weft does not support."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.support.errors import UnsupportedModelError
from weft.support.suggestion import nearest

_SHOWN = 3


def unsupported_operators(
    what: str, gaps: Mapping[str, Sequence[str]], where: str, help: str | None = None,
    noun: str = "node",
) -> UnsupportedModelError:
    """The error that lists ``gaps``, those of most nodes first, each with the labels of nodes."""
    ordered = sorted(gaps, key=lambda gap: (-len(gaps[gap]), gap))
    return UnsupportedModelError(what, where=where, help=help,
                                 notes=[_note(gap, gaps[gap], noun) for gap in ordered])


def counted(count: int, noun: str) -> str:
    """``1 operator``, ``2 operators``."""
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _note(gap: str, labels: Sequence[str], noun: str) -> str:
    more = ", ..." if len(labels) > _SHOWN else ""
    return f"{gap}: {counted(len(labels), noun)} ({', '.join(labels[:_SHOWN])}{more})"


def misspelling(op: str, known: Iterable[str], cutoff: float) -> str | None:
    """The question whether ``op`` is meant to be a supported operator of a similar name."""
    close = nearest(op, known, cutoff=cutoff)
    return f"is {op!r} meant to be {close[0]!r}?" if close else None
