"""Values of the virtual machine that NumPy does not have.

Tensors are C-contiguous arrays that nobody writes to any more, tuples are Python's.
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
    """A function of the program (by number) with the values that it captured."""

    __slots__ = ("captured", "function")

    def __init__(self, function: int, captured: tuple[Value, ...]) -> None:
        self.function = function
        self.captured = captured


class Ref:
    """A place that holds a value and may get another one."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


def value_text(root: Value, limit: int = 200) -> str:
    """``Cons(array(1.), Nil())``: at most ``limit`` pieces, for lists may be long and deep."""
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
    """What to push so that ``(a, b)`` comes out."""
    pieces: list[Value] = [_Text("(")]
    for number, field in enumerate(fields):
        pieces += [_Text(", "), field] if number else [field]
    return [*reversed([*pieces, _Text(")")])]
