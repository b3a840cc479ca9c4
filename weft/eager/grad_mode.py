"""Switches of gradient recording: ``with weft.no_grad():``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from weft.eager.cell import MODE

F = TypeVar("F", bound=Callable[..., Any])


class set_grad_enabled:
    """Record gradients or not: a context manager, a decorator, or a call that lasts."""

    def __init__(self, mode: bool) -> None:
        self._mode = mode
        self._before = [MODE.grad]
        MODE.grad = mode

    def __enter__(self) -> None:
        MODE.grad = self._mode

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        MODE.grad = self._before[0]


class _Switch:
    """A context manager and decorator that may be entered several times."""

    _value = False

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(MODE.grad)
        MODE.grad = self._value

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        MODE.grad = self._before.pop()

    def __call__(self, function: F) -> F:
        """The function, run in this mode."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return run  # type: ignore[return-value]


class no_grad(_Switch):
    """Results of operators inside do not require gradients."""


inference_mode = no_grad


class enable_grad(_Switch):
    """Record gradients again, inside ``no_grad``."""

    _value = True


def is_grad_enabled() -> bool:
    """Whether gradients are recorded."""
    return MODE.grad
