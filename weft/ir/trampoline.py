"""Recursive algorithms with an explicit stack.

A routine is a generator that calls another one by ``result = yield other(...)``. Its depth is
bounded by memory, not by the interpreter's stack.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

R = TypeVar("R")
Routine: TypeAlias = Generator[Any, Any, R]


def run(routine: Routine[R]) -> R:
    """Run ``routine`` and all it calls; exceptions propagate through the callers."""
    stack: list[Routine[Any]] = [routine]
    value: Any = None
    error: BaseException | None = None
    while stack:
        try:
            if error is not None:
                pending, error = error, None
                called = stack[-1].throw(pending)
            else:
                called = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value
        except Exception as raised:  # noqa: BLE001
            stack.pop()
            error = raised
        else:
            stack.append(called)
            value = None
    if error is not None:
        raise error
    return value
