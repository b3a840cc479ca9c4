"""Hooks of modules: functions that run before or after a module, and handles that remove them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

_ids = itertools.count()
Hooks = dict[int, Any]  # functions, or ``AfterForward``


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


def add_hook(hooks: Hooks, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    """Append ``hook`` to ``hooks``, which run in order of registration, or put it first."""
    handle = RemovableHandle(hooks)
    others = dict(hooks) if prepend else {}
    if prepend:
        hooks.clear()
    hooks[handle.id] = hook
    hooks.update(others)
    return handle


def before_forward(hook: Callable[..., Any], with_kwargs: bool) -> Callable[..., Any]:
    """``hook`` as a function of (module, args, kwargs) that returns arguments and keywords."""
    return functools.partial(_before_forward, hook, with_kwargs)


def _before_forward(
    hook: Callable[..., Any], with_kwargs: bool, module: Any, args: Any, kwargs: Any
) -> tuple[Any, Any]:
    if with_kwargs:
        changed = hook(module, args, kwargs)
        return (args, kwargs) if changed is None else changed
    changed = hook(module, args)
    if changed is None:
        return args, kwargs
    return (changed if isinstance(changed, tuple) else (changed,)), kwargs


class AfterForward:
    """A hook as a function of (module, args, kwargs, output), that may run after an error too."""

    def __init__(self, hook: Callable[..., Any], with_kwargs: bool, always_call: bool) -> None:
        self.hook, self.with_kwargs, self.always_call = hook, with_kwargs, always_call

    def __call__(self, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        if self.with_kwargs:
            return self.hook(module, args, kwargs, output)
        return self.hook(module, args, output)


class _Every:
    """The hooks that all modules run before their own."""

    def __init__(self) -> None:
        self.before: Hooks = {}
        self.after: Hooks = {}
        self.backward_pre: Hooks = {}
        self.backward: Hooks = {}

    @property
    def has_backward(self) -> bool:
        """Whether there are hooks of ``backward``."""
        return bool(self.backward or self.backward_pre)


EVERY = _Every()


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, args)`` before ``forward`` of every module."""
    return add_hook(EVERY.before, before_forward(hook, False))


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Run ``hook(module, args, output)`` after ``forward`` of every module."""
    return add_hook(EVERY.after, AfterForward(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, grad_output)`` in ``backward`` of every module."""
    return add_hook(EVERY.backward_pre, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Run ``hook(module, grad_input, grad_output)`` in ``backward`` of every module."""
    return add_hook(EVERY.backward, hook)


register_module_backward_hook = register_module_full_backward_hook
