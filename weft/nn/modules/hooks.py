"""Hooks of modules: functions that run before or after a module, and handles that remove them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_ids = itertools.count()


class RemovableHandle:
    """What registers a hook returns: ``remove()`` takes the hook out again.

    Also a context manager, which removes the hook at its end.
    """

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: dict[int, Any]) -> None:
        self._hooks = hooks
        self.id = next(_ids)

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def add_hook(hooks: dict[int, Any], hook: Callable[..., Any]) -> RemovableHandle:
    """Append ``hook`` to ``hooks``, which run in order of registration."""
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
