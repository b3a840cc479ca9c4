"""Logical and bitwise functions of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.eager.dtypes import bool_
from weft.eager.functions.elementwise import binary, cast, operands
from weft.eager.record import as_node, record, wrap
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def logical_and(input: Any, other: Any) -> Tensor:
    """Whether both are nonzero."""
    return _logical("logical_and", input, other)


def logical_or(input: Any, other: Any) -> Tensor:
    """Whether one is nonzero."""
    return _logical("logical_or", input, other)


def logical_xor(input: Any, other: Any) -> Tensor:
    """Whether exactly one is nonzero."""
    return _logical("logical_xor", input, other)


def logical_not(input: Any) -> Tensor:
    """Whether elements are zero."""
    return wrap(record("logical_not", (cast(as_node(input), bool_),), {}))


def _logical(name: str, a: Any, b: Any) -> Tensor:
    nodes = tuple([cast(as_node(x), bool_) for x in (a, b)])
    return wrap(record(name, nodes, {}))


def _bits(name: str, a: Any, b: Any) -> Tensor:
    """A bitwise operator of integers; of booleans, the logical one."""
    nodes = operands(a, b)
    d = nodes[0].sig.out.dtype
    if d.is_floating_point:
        raise InvalidInputError(f"bitwise_{name} takes integers or booleans", got=repr(d))
    return wrap(record(f"logical_{name}" if d is bool_ else f"bitwise_{name}", nodes, {}))


def bitwise_and(input: Any, other: Any) -> Tensor:
    """The bits set in both."""
    return _bits("and", input, other)


def bitwise_or(input: Any, other: Any) -> Tensor:
    """The bits set in one at least."""
    return _bits("or", input, other)


def bitwise_xor(input: Any, other: Any) -> Tensor:
    """The bits set in exactly one."""
    return _bits("xor", input, other)


def bitwise_not(input: Any) -> Tensor:
    """The bits inverted."""
    node = as_node(input)
    name = "logical_not" if node.sig.out.dtype is bool_ else "bitwise_not"
    return wrap(record(name, (node,), {}))


def bitwise_left_shift(input: Any, other: Any) -> Tensor:
    """``input << other``."""
    return binary("left_shift", input, other)


def bitwise_right_shift(input: Any, other: Any) -> Tensor:
    """``input >> other``."""
    return binary("right_shift", input, other)
