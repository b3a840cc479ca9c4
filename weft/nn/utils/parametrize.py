"""Parametrizations: a tensor of a module that is computed from parameters when it is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.containers import ModuleDict, ModuleList
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter

M = TypeVar("M", bound=Module)
_TABLE = "parametrizations"


class _Cached(threading.local):
    """The tensors computed inside of ``cached()``, by list."""

    values: dict[int, Tensor] | None = None


_CACHED = _Cached()


@contextmanager
def cached() -> Iterator[None]:
    """Compute each parametrized tensor once inside of the ``with`` statement."""
    before = _CACHED.values
    _CACHED.values = {} if before is None else before
    try:
        yield
    finally:
        _CACHED.values = before


class ParametrizationList(ModuleList):
    """The modules that compute a tensor, one after another, and the parameters they start from.

    These are ``original``, or ``original0``, ``original1``, … if the first module takes several.
    """

    def __init__(self, modules: list[Module], original: Tensor) -> None:
        super().__init__(modules)
        with no_grad():
            start: Any = original
            for module in reversed(modules):
                start = _inverted(module, start)
        self._count = len(start) if isinstance(start, tuple) else 0
        parts = start if isinstance(start, tuple) else (start,)
        for name, part in zip(self._names(), parts, strict=True):
            if isinstance(original, Parameter):
                made = Parameter(part.detach().clone(), requires_grad=original.requires_grad)
                self.register_parameter(name, made)
            else:
                self.register_buffer(name, part.detach().clone())

    def _names(self) -> list[str]:
        return [f"original{i}" for i in range(self._count)] or ["original"]

    def forward(self) -> Tensor:
        """The tensor."""
        known = _CACHED.values
        if known is not None and id(self) in known:
            return known[id(self)]
        first, *rest = list(self)
        found = first(*[getattr(self, name) for name in self._names()])
        for module in rest:
            found = module(found)
        if known is not None:
            known[id(self)] = found
        return found

    def right_inverse(self, value: Tensor) -> None:
        """Change the originals so that the tensor has this value."""
        with no_grad():
            start: Any = value
            for module in reversed(list(self)):
                start = _inverted(module, start)
            parts = start if isinstance(start, tuple) else (start,)
            for name, part in zip(self._names(), parts, strict=True):
                getattr(self, name).copy_(part)


def _inverted(module: Module, value: Any) -> Any:
    """What a module computes ``value`` from: ``value`` if it has no ``right_inverse``."""
    inverse = getattr(module, "right_inverse", None)
    return value if inverse is None else inverse(value)


def register_parametrization(
    module: M, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> M:
    """Let ``parametrization`` compute a parameter or buffer of ``module``.

    ``right_inverse`` of the parametrization gives the parameters to start from. Unless ``unsafe``,
    shape and dtype must stay.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        parts = module.get_submodule(f"{_TABLE}.{tensor_name}")
        assert isinstance(parts, ParametrizationList)
        value = getattr(module, tensor_name)
        _check(tensor_name, value, parametrization(value), unsafe)
        with no_grad():
            parts.right_inverse(_inverted(parametrization, value))
        parts.append(parametrization)
        return module
    original = {**module._parameters, **module._buffers}.get(tensor_name)
    if original is None:
        raise ModuleError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    found = ParametrizationList([parametrization], original)
    _check(tensor_name, original, found(), unsafe)
    delattr(module, tensor_name)
    names = tuple(getattr(module, _TABLE, ()))
    _retype(module, (*names, tensor_name))
    if not names:
        module.register_module(_TABLE, ModuleDict())
    getattr(module, _TABLE)[tensor_name] = found
    return module


def _check(name: str, before: Tensor, after: Tensor, unsafe: bool) -> None:
    if not unsafe and (before.shape != after.shape or before.dtype is not after.dtype):
        raise ModuleError(f"a parametrization changes the type of {name}",
                          expected=f"{tuple(before.shape)}, {before.dtype}",
                          got=f"{tuple(after.shape)}, {after.dtype}",
                          help="unsafe=True allows it")


def remove_parametrizations(module: M, tensor_name: str, leave_parametrized: bool = True) -> M:
    """Undo ``register_parametrization``; the tensor keeps its value, or with
    ``leave_parametrized=False`` becomes the original.
    """
    if not is_parametrized(module, tensor_name):
        raise ModuleError(f"{type(module).__name__}.{tensor_name} has no parametrization")
    table = getattr(module, _TABLE)
    parts = table[tensor_name]
    names = parts._names()
    if not leave_parametrized and len(names) > 1:
        raise ModuleError(f"{tensor_name} has several originals", got=", ".join(names),
                          help="leave_parametrized=True keeps the value")
    first = getattr(parts, names[0])
    value = (getattr(module, tensor_name) if leave_parametrized else first).detach().clone()
    del table[tensor_name]
    if not len(table):
        delattr(module, _TABLE)
    _retype(module, tuple(table))
    if isinstance(first, Parameter):
        module.register_parameter(tensor_name, Parameter(value, requires_grad=first.requires_grad))
    else:
        module.register_buffer(tensor_name, value)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a tensor of a module, or any of them, is parametrized."""
    names = tuple(module._modules.get(_TABLE) or ())
    return bool(names) if tensor_name is None else tensor_name in names


def type_before_parametrizations(module: Module) -> type[Module]:
    """The class that a parametrized module had before."""
    return getattr(type(module), "_plain_class", type(module))


def _retype(module: Any, names: tuple[str, ...]) -> None:
    module.__class__ = _class_of(type_before_parametrizations(module), names)


def _class_of(plain: type[Module], names: tuple[str, ...]) -> type[Module]:
    """The subclass with properties for parametrized tensors; the class itself for none."""
    if not names:
        return plain

    def set_value(self: Module, name: str, value: Any) -> None:
        if name in names:
            getattr(self, _TABLE)[name].right_inverse(value)
        else:
            plain.__setattr__(self, name, value)

    def reduced(self: Module, protocol: int) -> Any:  # noqa: ARG001 - of the protocol
        return _rebuilt, (plain, names), self.__dict__

    body: dict[str, Any] = {"_plain_class": plain, "__setattr__": set_value,
                            "__reduce_ex__": reduced, "__module__": plain.__module__}
    for name in names:
        body[name] = property(lambda self, name=name: getattr(self, _TABLE)[name]())
    return type(f"Parametrized{plain.__name__}", (plain,), body)


def _rebuilt(plain: type[Module], names: tuple[str, ...]) -> Module:
    made = _class_of(plain, names)
    return made.__new__(made)
