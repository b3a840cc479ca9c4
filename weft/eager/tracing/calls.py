"""Calls of traced functions: arguments as leaves, and the key under which a trace is kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft.eager.cell import MODE, Cell, node_of, spec_of_cell
from weft.eager.device import device
from weft.eager.node import Node, Spec, number_node
from weft.eager.placement import moved
from weft.eager.promotion import dtype_of_number
from weft.eager.record import as_node, wrap
from weft.eager.tracing.pytree import Structure, flatten, names_of, unflatten
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, OptionError


class Static:
    """An argument that is declared static: a leaf, whatever it holds."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(slots=True)
class Arguments:
    """The leaves of a call: ``dynamic`` are nodes of tensors, ``key`` has everything else.

    ``leaves`` have a ``Spec`` for each tensor, and other values as they are; ``structure`` is that
    of ``(args, kwargs)``.
    """

    key: Hashable
    dynamic: list[Node]
    leaves: list[Any]
    structure: Structure

    def flows(self) -> tuple[bool, ...] | None:
        """Which tensors gradients flow to, ``None`` for none."""
        if not MODE.grad:
            return None
        for node in self.dynamic:
            if node.grad is not None:
                return tuple([node.grad is not None for node in self.dynamic])
        return None

    def text(self, names: Sequence[str]) -> str:
        """The arguments, for people."""
        specs = [leaf for leaf in self.leaves if isinstance(leaf, Spec)]
        found = [f"{name} {spec.dtype}{list(spec.shape)}"
                 for name, spec in zip(names, specs, strict=False)]
        return ", ".join([*found, *[repr(leaf) for leaf in self.leaves
                                    if not isinstance(leaf, Spec)]])


class Signature:
    """Which arguments of a function are static."""

    def __init__(self, function: Callable[..., Any], numbers: int | Sequence[int],
                 names: str | Sequence[str]) -> None:
        self.numbers = frozenset((numbers,) if isinstance(numbers, int) else numbers)
        self.names = frozenset((names,) if isinstance(names, str) else names)
        try:
            self.parameters = list(inspect.signature(function).parameters)
        except (TypeError, ValueError):
            self.parameters = []
        wrong = [n for n in self.numbers if not isinstance(n, int) or n < 0]
        if wrong:
            raise OptionError("static_argnums has no such position", got=repr(wrong[0]),
                              expected="positions counted from 0")
        self.numbers |= {self.parameters.index(n) for n in self.names if n in self.parameters}
        self.names |= {self.parameters[n] for n in self.numbers if n < len(self.parameters)}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The leaves and the key of a call. ``InvalidInputError`` for unhashable static values."""
        given = tuple([Static(a) if i in self.numbers else a for i, a in enumerate(args)])
        named = {k: Static(v) if k in self.names else v for k, v in sorted(kwargs.items())}
        values, structure = flatten((given, named))
        dynamic: list[Node] = []
        leaves: list[Any] = []
        key: list[Any] = [structure]
        for value in values:
            if isinstance(value, Cell):
                leaves.append(spec_of_cell(value))
                dynamic.append(node_of(value))
                key.append(leaves[-1].number)
            elif isinstance(value, (np.ndarray, np.generic, float, int)):
                node = _number(value) if isinstance(value, (float, int)) else as_node(value)
                leaves.append(node.sig.out)
                dynamic.append(node)
                key.append(node.sig.out.number)
            else:
                plain = value.value if isinstance(value, Static) else value
                leaves.append(plain)
                key.append((type(plain), _hashable(plain)))
        return Arguments(tuple(key), dynamic, leaves, structure)

    def names_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[str]:
        """A name for each leaf of a call."""
        found = []
        for i, arg in enumerate(args):
            name = self.parameters[i] if i < len(self.parameters) else f"x{i}"
            found += names_of(Static(arg) if i in self.numbers else arg, name)
        for name, arg in sorted(kwargs.items()):
            found += names_of(Static(arg) if name in self.names else arg, name)
        return found


def on_device(tree: Any, where: device) -> Any:
    """Arguments with their tensors and arrays on a device."""
    leaves, structure = flatten(tree)
    return unflatten(structure, [
        wrap(moved(as_node(leaf), where)) if isinstance(leaf, (Cell, np.ndarray)) else leaf
        for leaf in leaves])


def _number(value: Any) -> Node:
    return number_node(value, dtype_of_number(value))


def _hashable(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise InvalidInputError(
            "a static argument is not hashable", got=type(value).__name__,
            expected="a value that can be the key of a dict, or a tensor, array or number",
        ) from None
    return value
