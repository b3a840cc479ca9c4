"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from weft.eager.tensor import Tensor
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter


def _position(index: Any, size: int, name: str) -> int:
    number = operator.index(index)
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of range for {name} of size {size}")
    return number % size


class _ModuleSequence(Module):
    """Modules under the names "0", "1", …"""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __contains__(self, module: object) -> bool:
        return any(module is own for own in self)

    def __getitem__(self, index: int | slice) -> Any:
        modules = list(self)
        if isinstance(index, slice):
            names = list(self._modules)[index]
            return self._of(OrderedDict((n, self._modules[n]) for n in names))
        return modules[_position(index, len(self), type(self).__name__)]

    def _of(self, named: Mapping[str, Module]) -> Any:
        return type(self)(named.values())

    def _key(self, index: int) -> str:
        return list(self._modules)[_position(index, len(self), type(self).__name__)]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)
        gone = names[index] if isinstance(index, slice) else [self._key(index)]
        for name in gone:
            del self._modules[name]
        self._number(list(self))

    def _number(self, modules: list[Module]) -> None:
        """Give the modules the names "0", "1", … again."""
        self._modules.clear()
        self._modules.update({str(i): m for i, m in enumerate(modules)})

    def append(self, module: Module) -> Any:
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        if not isinstance(module, Module):
            raise ModuleError("not a module", expected="nn.Module", got=type(module).__name__)
        modules = list(self)
        modules.insert(index, module)
        self._number(modules)
        return self


class Sequential(_ModuleSequence):
    """Modules that run one after the other: ``Sequential(a, b)`` or of an ``OrderedDict``."""

    def __init__(self, *args: Any) -> None:
        if len(args) == 1 and isinstance(args[0], Mapping):
            super().__init__()
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            super().__init__(args)

    def _of(self, named: Mapping[str, Module]) -> Sequential:
        return Sequential(named)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x


class ModuleList(_ModuleSequence):
    """A list of modules, whose parameters belong to its owner. It cannot be called."""


class ModuleDict(Module):
    """Modules by name, whose parameters belong to its owner. It cannot be called."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        return self._modules.items()

    def pop(self, name: str) -> Module:
        return self._modules.pop(name)

    def clear(self) -> None:
        self._modules.clear()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for name, module in dict(modules).items():
            self.add_module(name, module)


def _as_parameter(value: Any) -> Parameter:
    return value if isinstance(value, Parameter) else Parameter(value)


class ParameterList(Module):
    """A list of parameters, which belong to its owner; tensors become parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        self.extend(values)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int | slice) -> Any:
        values = list(self)
        if isinstance(index, slice):
            return ParameterList(values[index])
        return values[_position(index, len(self), "ParameterList")]

    def __setitem__(self, index: int, value: Any) -> None:
        name = str(_position(index, len(self), "ParameterList"))
        self._parameters[name] = _as_parameter(value)

    def append(self, value: Any) -> ParameterList:
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"({n}): {_line(p)}" for n, p in self._parameters.items())


class ParameterDict(Module):
    """Parameters by name, which belong to its owner; tensors become parameters."""

    def __init__(self, parameters: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def __getitem__(self, name: str) -> Parameter:
        return self._parameters[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.register_parameter(name, _as_parameter(value))

    def __delitem__(self, name: str) -> None:
        del self._parameters[name]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._parameters

    def keys(self) -> Iterable[str]:
        return self._parameters.keys()

    def values(self) -> Iterable[Parameter]:
        return self._parameters.values()

    def items(self) -> Iterable[tuple[str, Parameter]]:
        return self._parameters.items()

    def update(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]]) -> None:
        for name, value in dict(parameters).items():
            self.register_parameter(name, _as_parameter(value))

    def extra_repr(self) -> str:
        return "\n".join(f"({n}): {_line(p)}" for n, p in self._parameters.items())


def _line(parameter: Tensor) -> str:
    return f"Parameter of {parameter.dtype}, shape {tuple(parameter.shape)}"
