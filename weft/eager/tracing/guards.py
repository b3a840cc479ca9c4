"""Guards: what a compiled step assumed of Python values, checked at each call.

A guard names a place (an item of an instance's ``__dict__``, of a namespace or a table, a closure
cell, the contents of a container) and the value that was found there. All guards of a program are
one generated function, as dataclasses and Dynamo make theirs: a conjunction of comparisons by
identity costs some 20 ns each, a loop over objects ten times that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import Any

import numpy as np

from weft.support.dataclass import dataclass

# Types whose values are compared by value: they cannot change.
PLAIN = (bool, int, float, complex, str, bytes, range, slice, np.generic, np.dtype)
Bind = Callable[[Any], str]
_INLINE = 8  # so many elements are compared one by one in the generated function


def same(a: Any, b: Any) -> bool:
    """Whether a program made for ``a`` serves for ``b``: equal plain values of one type, or one
    object. 0.0 and -0.0 differ, NaN is the same as itself, 1 and 1.0 and True differ.
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)  # noqa: PLR0124
    if isinstance(a, np.generic):
        return a.tobytes() == b.tobytes()
    if isinstance(a, (tuple, frozenset)):
        return len(a) == len(b) and (all(map(same, a, b)) if isinstance(a, tuple) else a == b)
    return isinstance(a, PLAIN) and bool(a == b)


def same_all(found: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Whether two sequences of one length have the same elements."""
    return all(map(is_, found, expected)) or all(map(same, found, expected))


def same_array(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether an array still has the elements, the shape and the dtype that it had."""
    return found.shape == expected.shape and found.dtype == expected.dtype \
        and found.tobytes() == expected.tobytes()


@dataclass(frozen=True, eq=False)
class Guard:
    """A place, the value found there while tracing, and what the user calls the place."""

    owner: Any
    key: Any
    value: Any
    path: str

    def place(self, bind: Bind) -> str:
        """The expression of the present value."""
        return f"{bind(self.owner)}[{self.key!r}]"

    def expression(self, bind: Bind) -> str:
        """The expression that is true while the guard holds."""
        return _is(self.place(bind), self.value, bind)

    def failure(self) -> str:
        """What differs, for people."""
        try:
            now = shown(evaluated(self.place, self.extra()))
        except LookupError:
            now = "missing"
        except (AttributeError, ValueError):
            now = "missing"
        return f"{self.path} was {shown(self.value)}, is {now}"

    def extra(self) -> dict[str, Any]:
        """Names that the expressions need beside the constants that they bind."""
        return HELPERS


class Item(Guard):
    """``owner[key]`` of a dict: an attribute of an instance, a global, an option."""


class Option(Guard):
    """``owner[key]`` of a dict whose own ``__getitem__`` is passed by."""

    def place(self, bind: Bind) -> str:
        return f"item({bind(self.owner)}, {self.key!r})"


class IsZero(Guard):
    """Whether ``owner[key]`` is zero: the number itself is an input of the program."""

    def place(self, bind: Bind) -> str:
        return f"(item({bind(self.owner)}, {self.key!r}) == 0)"


class Attribute(Guard):
    """``owner.key``, for slots."""

    def place(self, bind: Bind) -> str:
        return f"{bind(self.owner)}.{self.key}"


class Closure(Guard):
    """A variable of an enclosing function."""

    def place(self, bind: Bind) -> str:
        return f"{bind(self.owner)}.cell_contents"


class Absent(Guard):
    """No item ``key``: an instance that does not hide an attribute of its class."""

    def place(self, bind: Bind) -> str:
        return f"({self.key!r} in {bind(self.owner)})"


class IsSet(Guard):
    """Whether the attribute ``key`` of a tensor (its gradient, its hooks) is there."""

    def place(self, bind: Bind) -> str:
        return f"({bind(self.owner)}.{self.key} is not None)"


class Contents(Guard):
    """The elements of a list, a set or another iterable of known length."""

    def place(self, bind: Bind) -> str:
        return f"tuple({bind(self.owner)})"

    def expression(self, bind: Bind) -> str:
        owner, value = bind(self.owner), self.value
        if not value:
            return f"not {owner}"
        first = f"(len({owner}) == {len(value)} and "
        if isinstance(self.owner, list) and len(value) <= _INLINE:
            parts = [_is(f"{owner}[{i}]", one, bind) for i, one in enumerate(value)]
            return first + " and ".join(parts) + ")"
        return first + f"same_all({owner}, {bind(value)}))"


class Table(Guard):
    """Keys, order and values of a dict. ``value`` has the items."""

    def place(self, bind: Bind) -> str:
        return f"tuple({bind(self.owner)}.items())"

    def expression(self, bind: Bind) -> str:
        owner = bind(self.owner)
        if not self.value:
            return f"not {owner}"
        keys, values = zip(*self.value, strict=True)
        if len(keys) <= _INLINE and all(type(key) is str for key in keys):
            parts = [_is(f"{owner}[{key!r}]", value, bind) for key, value in self.value]
            return f"([*{owner}] == {bind(list(keys))} and " + " and ".join(parts) + ")"
        return (f"(len({owner}) == {len(keys)} and same_all({owner}, {bind(keys)})"
                f" and same_all({owner}.values(), {bind(values)}))")


class Values(Guard):
    """The values of a dict, whatever its keys."""

    def place(self, bind: Bind) -> str:
        return f"tuple({bind(self.owner)}.values())"

    def expression(self, bind: Bind) -> str:
        owner = bind(self.owner)
        return (f"(len({owner}) == {len(self.value)}"
                f" and same_all({owner}.values(), {bind(self.value)}))")


class Elements(Guard):
    """The elements of an array, which may be written to."""

    def place(self, bind: Bind) -> str:
        return bind(self.owner)

    def expression(self, bind: Bind) -> str:
        return f"same_array({bind(self.owner)}, {bind(self.value)})"


def _is(place: str, value: Any, bind: Bind) -> str:
    """The expression that is true while ``place`` has the value."""
    if value is None or value is True or value is False:
        return f"{place} is {value}"
    if isinstance(value, (*PLAIN, tuple, frozenset)):
        return f"({place} is {bind(value)} or same({place}, {bind(value)}))"
    return f"{place} is {bind(value)}"


HELPERS: dict[str, Any] = {"same": same, "same_all": same_all, "same_array": same_array,
           "item": dict.__getitem__}


def evaluated(make: Callable[[Bind], str], names: dict[str, Any]) -> Any:
    """The value of an expression."""
    bind, found = _binder()
    return eval(make(bind), {**names, **found})  # noqa: S307 - of the expressions of this file


def check_of(guards: Sequence[Guard]) -> Callable[[], bool]:
    """The function that says whether all guards hold."""
    if not guards:
        return lambda: True
    bind, found = _binder()
    lines = ["def check():", "    try:", "        return ("]
    lines += [f"            {'and ' if i else ''}{guard.expression(bind)}"
              for i, guard in enumerate(guards)]
    lines += ["        )", "    except (LookupError, AttributeError, ValueError, TypeError):",
              "        return False"]
    names: dict[str, Any] = {**HELPERS, **found}
    exec("\n".join(lines), names)  # noqa: S102 - of the expressions of this file
    return names["check"]


def first_failure_of(guards: Sequence[Guard]) -> Guard | None:
    """The first guard that does not hold."""
    return next((g for g in guards if not check_of([g])()), None)


def _binder() -> tuple[Bind, dict[str, Any]]:
    """A function that gives a name to each object, and the table of names that it fills."""
    found: dict[str, Any] = {}
    names: dict[int, str] = {}

    def bind(value: Any) -> str:
        name = names.get(id(value))
        if name is None:
            name = names[id(value)] = f"k{len(found)}"
            found[name] = value
        return name

    return bind, found


def shown(value: Any) -> str:
    """A value in at most 60 characters; objects by their class."""
    if isinstance(value, (list, tuple, dict)):
        text = f"{type(value).__name__} of {len(value)}"
        return repr(value) if all(isinstance(v, PLAIN) for v in value) \
            and len(repr(value)) <= 60 and not isinstance(value, dict) else text
    if value is None or isinstance(value, PLAIN):
        text = repr(value)
        return text if len(text) <= 60 else text[:57] + "..."
    if isinstance(value, type) or callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    return f"a {type(value).__name__}"
