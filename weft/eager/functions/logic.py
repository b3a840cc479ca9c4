"""Logical and bitwise functions of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.eager.dtypes import bool_
from weft.eager.functions.elementwise import binary, cast, ge, lt, operands, where
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import pair, row
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


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


def _inverted(input: Any) -> Tensor:
    """The bits of integers inverted; of booleans, the other truth value."""
    node = as_node(input)
    if node.sig.out.dtype.is_floating_point:
        raise InvalidInputError("bitwise_not takes integers or booleans",
                                got=repr(node.sig.out.dtype))
    name = "logical_not" if node.sig.out.dtype is bool_ else "bitwise_not"
    return wrap(record(name, (node,), {}))


def _not(input: Any) -> Tensor:
    return wrap(record("logical_not", (cast(as_node(input), bool_),), {}))


def _shifted(name: str, a: Any, b: Any) -> Tensor:
    """Shifted bits; a distance of all bits or more leaves 0, or -1 to the right of negatives."""
    x, y = [wrap(n) for n in operands(a, b)]
    bits = 8 * x.dtype.itemsize
    wide = ge(y, bits) | lt(y, 0)
    if name == "right_shift" and x.dtype.is_signed:
        return binary(name, x, where(wide, bits - 1, y))  # leaves the sign
    return where(wide, 0, binary(name, x, where(wide, 0, y)))


logical_and = pair("logical_and", "Whether both are nonzero.", _logical, "logical_and")
logical_or = pair("logical_or", "Whether one is nonzero.", _logical, "logical_or")
logical_xor = pair("logical_xor", "Whether exactly one is nonzero.", _logical, "logical_xor")
logical_not = row("logical_not", "Whether elements are zero.", _not)
bitwise_and = pair("bitwise_and", "The bits set in both.", _bits, "and")
bitwise_or = pair("bitwise_or", "The bits set in one at least.", _bits, "or")
bitwise_xor = pair("bitwise_xor", "The bits set in exactly one.", _bits, "xor")
bitwise_not = row("bitwise_not", "The bits inverted.", _inverted)
bitwise_left_shift = pair("bitwise_left_shift", "``input << other``.", _shifted, "left_shift")
bitwise_right_shift = pair("bitwise_right_shift", "``input >> other``.", _shifted, "right_shift")
