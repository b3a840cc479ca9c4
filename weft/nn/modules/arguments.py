"""Keywords of layers: an unknown one is an error that offers the nearest."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from weft.eager.signature import ArgumentError
from weft.support.suggestion import did_you_mean


@functools.lru_cache(1024)
def check_keywords(cls: type[Any], given: frozenset[str]) -> None:
    """Raise ``ArgumentError`` for keywords that the constructor of a class does not take."""
    parameters = inspect.signature(cls.__init__).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    known = [name for name, p in parameters.items()
             if p.kind is not p.VAR_POSITIONAL and name != "self"]
    for name in sorted(given.difference(known)):
        raise ArgumentError(f"{cls.__name__} has no keyword {name!r}", expected=", ".join(known),
                            help=did_you_mean(name, known))
