"""The known names that are nearest to an unknown one, for error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import overload


def nearest(name: str, known: Iterable[str], *, count: int = 3, cutoff: float = 0.6) -> list[str]:
    """At most ``count`` of the ``known`` names, the nearest first; upper case is as lower case.

    ``cutoff`` is the least similarity, from 0 to 1 (``difflib.SequenceMatcher.ratio``).
    """
    import difflib  # for errors alone

    spellings: dict[str, list[str]] = {}
    for one in known:
        spellings.setdefault(one.lower(), []).append(one)
    close = difflib.get_close_matches(name.lower(), spellings, n=count, cutoff=cutoff)
    return [one for spelling in close for one in spellings[spelling]][:count]


@overload
def did_you_mean(name: str, known: Iterable[str], otherwise: str, *,
                 shown: Callable[[str], str] = repr) -> str: ...
@overload
def did_you_mean(name: str, known: Iterable[str], otherwise: None = None, *,
                 shown: Callable[[str], str] = repr) -> str | None: ...
def did_you_mean(name: str, known: Iterable[str], otherwise: str | None = None, *,
                 shown: Callable[[str], str] = repr) -> str | None:
    """The nearest names as a question; ``otherwise`` if none is near."""
    close = nearest(name, known)
    return f"did you mean {' or '.join(map(shown, close))}?" if close else otherwise


def missing_attribute(module: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for a name that a module lacks, with the nearest ``known`` names.

    Names that start with an underscore get none: Python itself asks for them, to see whether they
    exist.
    """
    what = f"module {module!r} has no attribute {name!r}"
    hint = None if name.startswith("_") else did_you_mean(name, known)
    return AttributeError(f"{what}; {hint}" if hint else what, name=name)


def described_type(value: object) -> str:
    """The name of the type of a value, with the package that it is of."""
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    return kind.__name__ if package == "builtins" else f"{package}'s {kind.__name__}"
