"""The public names of weft, and the parameters of those that are called.

``python -m tests.unit.public.names`` writes the list after a change that is meant.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import weft

GOLDEN = Path(__file__).parent / "names.txt"


def listed() -> str:
    lines = [line for name in sorted(weft.__all__) for line in _lines(name, getattr(weft, name))]
    return "\n".join([*lines, *(f"module weft.{name}" for name in weft._SUBMODULES), ""])


def _lines(name, value):
    if inspect.isclass(value):
        yield f"class {name}"
        members = [m for m in vars(value) if m == "__call__" or not m.startswith("_")]
        if name == "Executable":
            yield from (_member(name, m, inspect.getattr_static(value, m)) for m in sorted(members))
    elif callable(value) and not isinstance(value, type(weft.config)):
        yield f"def {name}{_parameters(value)}"
    else:
        yield f"value {name}"


def _member(owner, name, value):
    return f"  {name}" if isinstance(value, property) else f"  {name}{_parameters(value)}"


def _parameters(function):
    bare = [p.replace(annotation=inspect.Parameter.empty, default=_shown(p.default))
            for p in inspect.signature(function).parameters.values()]
    return str(inspect.Signature(bare))


def _shown(default):
    """A default that every version of Python prints alike."""
    plain = default is inspect.Parameter.empty or type(default) in (str, int, float, bool, tuple)
    return default if plain or default is None else ...


if __name__ == "__main__":
    GOLDEN.write_text(listed(), encoding="utf-8")
