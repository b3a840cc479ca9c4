"""Old public names: each works for one minor version and warns with the new name.

``renamed_attributes`` makes the ``__getattr__`` of a module with renamed names; a class keeps a
method as ``old = renamed_method(...)``; ``@renamed_arguments`` lets a function take its old keyword
arguments. ``docs/renamed.md`` lists all old names.
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

REMOVED_IN = "0.3"
_PACKAGE = str(Path(__file__).resolve().parents[1] / "_").removesuffix("_")

P = ParamSpec("P")
R = TypeVar("R")


def renaming(old: str, new: str) -> str:
    """The sentence of the warning."""
    return f"{old} is now {new}; the old name goes with {REMOVED_IN}"


def warn_renamed(old: str, new: str) -> None:
    """A ``DeprecationWarning`` at the line outside of weft that uses ``old``, once per line."""
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to the caller's line
    while frame.f_back is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    warnings.warn_explicit(
        renaming(old, new), DeprecationWarning, frame.f_code.co_filename, frame.f_lineno,
        frame.f_globals.get("__name__", "__main__"),
        frame.f_globals.setdefault("__warningregistry__", {}))


def _is_inside(file: str) -> bool:
    return file.startswith((_PACKAGE, "<frozen importlib"))


def renamed_attribute(module: str, old: str, new: str) -> Any:
    """The attribute ``new`` of a module, after a warning for the use of ``old``."""
    warn_renamed(f"{module}.{old}", f"{module}.{new}")
    return getattr(sys.modules[module], new)


def renamed_attributes(module: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose attributes have old ``names``: old -> new."""
    def find(name: str) -> Any:
        if name in names:
            return renamed_attribute(module, name, names[name])
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return find


def renamed_method(old: str, new: str) -> Callable[..., Any]:
    """A method that warns and calls the method ``new`` of the same object."""
    def method(self: object, *args: Any, **kwargs: Any) -> Any:
        warn_renamed(f"{type(self).__name__}.{old}", f"{type(self).__name__}.{new}")
        return getattr(self, new)(*args, **kwargs)

    method.__name__, method.__doc__ = old, f"The old name of ``{new}``."
    return method


def renamed_arguments(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take keyword arguments by their old names: ``@renamed_arguments(old="new")``.

    Raises ``TypeError`` for a call with both names of an argument.
    """
    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for old in names.keys() & kwargs:
                new = names[old]
                warn_renamed(f"{function.__name__}({old}=)", f"{function.__name__}({new}=)")
                if new in kwargs:
                    raise TypeError(f"{function.__name__}() got both {new} and {old}, its old name")
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return wrap
