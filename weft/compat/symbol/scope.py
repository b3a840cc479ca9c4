"""Attributes that a context adds to new nodes, and names of nodes without one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self

from weft.compat.symbol.attribute_text import text_of

_SCOPE: ContextVar[Mapping[str, str]] = ContextVar("symbol_attributes", default={})  # noqa: B039 - never changed
_NUMBERS = itertools.count()


class AttrScope:
    """``with AttrScope(group="1"):`` adds attributes to the nodes made inside; inner ones win."""

    def __init__(self, **attrs: Any) -> None:
        self.attrs = {key: text_of(value) for key, value in attrs.items()}
        self._active: list[Any] = []

    def __enter__(self) -> Self:
        self._active.append(_SCOPE.set({**_SCOPE.get(), **self.attrs}))
        return self

    def __exit__(self, *_: object) -> None:
        _SCOPE.reset(self._active.pop())

    @staticmethod
    def merged(attrs: Mapping[str, str]) -> dict[str, str]:
        """``attrs`` and those of the current scope; the node's own win."""
        return {**_SCOPE.get(), **attrs}


_PREFIX: ContextVar[str] = ContextVar("symbol_prefix", default="")


@contextmanager
def name_prefix(prefix: str) -> Iterator[None]:
    """Automatic names of nodes made inside begin with ``prefix`` (NNVM's ``name.Prefix``)."""
    token = _PREFIX.set(_PREFIX.get() + prefix)
    try:
        yield
    finally:
        _PREFIX.reset(token)


def free_name(op: str) -> str:
    """A name that no node has had yet: ``dense0``, ``relu1``, ..."""
    return f"{_PREFIX.get()}{op.strip('_').rpartition('.')[2]}{next(_NUMBERS)}"
