"""Values of the virtual machine.

Tensors are C-contiguous NumPy arrays, immutable once computed; tuples are Python tuples.
"""

from __future__ import annotations

from typing import Any, TypeAlias

Value: TypeAlias = Any  # an array, a tuple of values, Data, Closure or Ref


class Data:
    """A value of an algebraic data type: the constructor's ``tag`` and ``name``, and ``fields``."""

    __slots__ = ("fields", "name", "tag")

    def __init__(self, tag: int, name: str, fields: tuple[Value, ...]) -> None:
        self.tag = tag
        self.name = name
        self.fields = fields

    def __repr__(self) -> str:
        return value_text(self)


class Closure:
    """The number of a function of the program, with its captured values."""

    __slots__ = ("captured", "function")

    def __init__(self, function: int, captured: tuple[Value, ...]) -> None:
        self.function = function
        self.captured = captured


class Ref:
    """A mutable reference cell."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def value_text(root: Value, limit: int = 200) -> str:
    """The text of a value, such as ``Cons(array(1.), Nil())``, truncated to ``limit`` tokens."""
    written: list[str] = []
    stack: list[Value] = [root]
    while stack:
        if len(written) >= limit:
            return "".join([*written, "…"])
        value = stack.pop()
        if isinstance(value, _Text):
            written.append(value.text)
        elif isinstance(value, Data):
            written.append(value.name)
            stack.extend(_listed(value.fields))
        elif isinstance(value, tuple):
            stack.extend(_listed(value))
        else:
            written.append(repr(value))
    return "".join(written)


class _Text:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _listed(fields: tuple[Value, ...]) -> list[Value]:
    """The items to push onto the stack to print ``(a, b)``: in reverse order."""
    items: list[Value] = [_Text("(")]
    for number, field in enumerate(fields):
        items += [_Text(", "), field] if number else [field]
    return [*reversed([*items, _Text(")")])]
