"""Containers: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from weft.eager.tensor import Tensor
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter
from weft.support.suggestion import described_type


class MissingEntryError(ModuleError, KeyError):
    """A container has no entry of this name."""

    __str__ = ModuleError.__str__


def _position(index: Any, size: int, name: str) -> int:
    number = operator.index(index)
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of range for {name} of size {size}")
    return number % size


def _put_module(owner: Module, name: str, entry: Any) -> None:
    if not isinstance(entry, Module) and entry is not None:
        raise ModuleError("not a module", expected="nn.Module", got=described_type(entry))
    owner._modules[name] = entry


class _Sequence(Module):
    """Entries under the names "0", "1", …"""

    def _table(self) -> dict[str, Any]:
        """The entries by name."""
        return self._modules

    def __len__(self) -> int:
        return len(self._table())

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._table().values()))

    def __contains__(self, entry: object) -> bool:
        return any(entry is own for own in self)

    def _key(self, index: int) -> str:
        return list(self._table())[_position(index, len(self), type(self).__name__)]

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._of(OrderedDict(list(self._table().items())[index]))
        return self._table()[self._key(index)]

    def _of(self, named: Mapping[str, Any]) -> Any:
        kind: Any = type(self)
        return kind(named.values())

    def __setitem__(self, index: int | slice, entry: Any) -> None:
        keys = [self._key(index)] if not isinstance(index, slice) else list(self._table())[index]
        for key, value in zip(keys, entry if isinstance(index, slice) else (entry,), strict=True):
            self._put(key, value)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._table())
        gone = names[index] if isinstance(index, slice) else [self._key(index)]
        self._number([value for name, value in self._table().items() if name not in gone])

    def _put(self, name: str, entry: Any) -> None:
        _put_module(self, name, entry)

    def _drop(self, name: str) -> None:
        del self._modules[name]

    def _number(self, entries: list[Any]) -> None:
        """Give the entries the names "0", "1", …"""
        for name in tuple(self._table()):
            self._drop(name)
        for i, entry in enumerate(entries):
            self._put(str(i), entry)

    def append(self, entry: Any) -> Self:
        self._put(str(len(self)), entry)
        return self

    def extend(self, entries: Iterable[Any]) -> Self:
        if not isinstance(entries, Iterable):
            raise ModuleError(f"{type(self).__name__}.extend takes an iterable",
                              got=type(entries).__name__)
        for entry in tuple(entries):
            self.append(entry)
        return self

    def insert(self, index: int, entry: Any) -> Self:
        entries = list(self)
        if isinstance(self, Sequential):  # a list takes any index, as in torch
            _position(index, len(self) + 1, type(self).__name__)
        entries.insert(index, entry)
        self._number(entries)
        return self

    def pop(self, index: int = -1) -> Any:
        entry = self[index]
        del self[index]
        return entry

    def __add__(self, others: Iterable[Any]) -> Any:
        return self._of(OrderedDict(enumerate((*self, *others))))  # type: ignore[arg-type]

    def __iadd__(self, others: Iterable[Any]) -> Self:
        return self.extend(others)


class Sequential(_Sequence):
    """Modules that run one after the other: ``Sequential(a, b)`` or of an ``OrderedDict``."""

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, module in args[0].items():
                self.add_module(name, module)
        else:
            self.extend(args)

    def _of(self, named: Mapping[Any, Any]) -> Sequential:
        return Sequential(OrderedDict((str(name), module) for name, module in named.items()))

    def __mul__(self, times: int) -> Sequential:
        if not isinstance(times, int) or times < 1:
            raise ModuleError("Sequential: wrong number of repetitions",
                              expected="a positive integer", got=repr(times))
        return Sequential(*(list(self) * times))

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Self:
        return self.extend(list(self * times)[len(self):])

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleList(_Sequence):
    """A list of modules, whose parameters belong to its owner. It cannot be called."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())


class _Named(Module):
    """Entries by name, with the methods of ``dict``."""

    def _table(self) -> dict[str, Any]:
        """The entries by name."""
        return self._modules

    def __getitem__(self, name: str) -> Any:
        if name not in self._table():
            raise MissingEntryError(f"{type(self).__name__} has no entry {name!r}",
                                    expected=", ".join(self._table()) or "no entries yet")
        return self._table()[name]

    def __setitem__(self, name: str, entry: Any) -> None:
        if name in self._table():
            _put_module(self, name, entry)
        else:
            self.add_module(name, entry)

    def _drop(self, name: str) -> None:
        del self._modules[name]

    def __delitem__(self, name: str) -> None:
        self.pop(name)

    def __len__(self) -> int:
        return len(self._table())

    def __iter__(self) -> Iterator[str]:
        return iter(self._table())

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._table())

    def __contains__(self, name: object) -> bool:
        return name in self._table()

    def keys(self) -> Iterable[str]:
        return self._table().keys()

    def values(self) -> Iterable[Any]:
        return self._table().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._table().items()

    def pop(self, name: str) -> Any:
        entry = self[name]
        self._drop(name)
        return entry

    def clear(self) -> None:
        for name in tuple(self):
            self._drop(name)

    def update(self, entries: Any) -> None:
        if not isinstance(entries, Iterable):
            raise ModuleError(f"{type(self).__name__}.update takes a mapping or pairs",
                              got=type(entries).__name__)
        pairs = entries.items() if hasattr(entries, "items") else entries
        for name, entry in tuple(pairs):
            self[name] = entry


class ModuleDict(_Named):
    """Modules by name, whose parameters belong to its owner. It cannot be called."""

    def __init__(self, modules: Any = None) -> None:
        super().__init__()
        self.update(modules or {})


def _line(name: str, value: Any) -> str:
    if not isinstance(value, Tensor):
        return f"({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"({name}): {kind} of {value.dtype}, shape {tuple(value.shape)}"


class _Values(Module):
    """Entries that are parameters or any other values; tensors become parameters."""

    def _others(self) -> dict[str, Any]:
        """All names in order, with the values that are no parameters."""
        return self.__dict__.setdefault("_entries", {})

    def _table(self) -> dict[str, Any]:
        return {name: self._parameters.get(name, other)
                for name, other in self._others().items()}

    def _put(self, name: str, entry: Any) -> None:
        is_plain = isinstance(entry, Tensor) and not isinstance(entry, Parameter)
        value = Parameter(entry) if is_plain else entry
        is_parameter = isinstance(value, Parameter)
        self._others()[name] = None if is_parameter else value
        if is_parameter:
            self._parameters[name] = value
        else:
            self._parameters.pop(name, None)

    def _drop(self, name: str) -> None:
        del self._others()[name]
        self._parameters.pop(name, None)

    def extra_repr(self) -> str:
        return "\n".join(_line(name, value) for name, value in self._table().items())


class ParameterList(_Values, _Sequence):
    """A list of parameters, which belong to its owner; tensors become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self.extend(values or ())


class ParameterDict(_Values, _Named):
    """Parameters by name, which belong to its owner; tensors become parameters."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self.update(parameters or {})

    def __setitem__(self, name: str, entry: Any) -> None:
        self._put(name, entry)

    def get(self, name: str, default: Any = None) -> Any:
        return self._table().get(name, default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def popitem(self) -> tuple[str, Any]:
        name = next(reversed(self), None)
        if name is None:
            raise MissingEntryError("ParameterDict is empty")
        return name, self.pop(name)

    def copy(self) -> ParameterDict:
        return ParameterDict(dict(self.items()))

    def fromkeys(self, names: Iterable[str], default: Any = None) -> ParameterDict:
        return ParameterDict((name, default) for name in names)

    def __or__(self, others: Mapping[str, Any]) -> ParameterDict:
        return ParameterDict({**dict(self.items()), **dict(others.items())})

    def __ror__(self, others: Mapping[str, Any]) -> ParameterDict:
        return ParameterDict({**dict(others.items()), **dict(self.items())})

    def __ior__(self, others: Mapping[str, Any]) -> Self:
        self.update(others)
        return self
