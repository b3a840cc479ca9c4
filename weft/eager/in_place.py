"""Methods that change a tensor: ``x.add_(1)`` makes ``x`` refer to ``x + 1``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.eager.cell import Cell, bind, check_in_place, node_of, spec_of_cell
from weft.eager.functions import elementwise as e
from weft.eager.functions import gathering as h
from weft.eager.functions import logic as g
from weft.eager.functions import shape as s
from weft.eager.node import CONSTANT, Node, common_device, value_node
from weft.eager.placement import moved
from weft.eager.record import as_node, record
from weft.eager.signature import checked
from weft.support.errors import InvalidInputError


def assign(cell: Any, result: Any, what: str) -> Any:
    """Make ``cell`` refer to ``result``, converted to its dtype; the shapes agree."""
    check_in_place(cell, what)
    spec = spec_of_cell(cell)
    node = node_of(result) if isinstance(result, Cell) else as_node(result, spec.dtype)
    have = node.sig.out
    if have.shape != spec.shape:
        raise InvalidInputError(f"{what}: the result does not have the shape of the tensor",
                                expected=str(spec.shape), got=str(have.shape))
    if have.dtype.rank > spec.dtype.rank:
        raise InvalidInputError(f"{what}: the result cannot be converted to the tensor's dtype",
                                expected=repr(spec.dtype), got=repr(have.dtype))
    if have.device is not spec.device:
        common_device((spec, have), what)  # raises but for a number of the CPU
    bind(cell, moved(e.cast(node, spec.dtype), spec.device))
    return cell


def in_place(function: Callable[..., Any], symbol: str | None = None) -> Callable[..., Any]:
    """The method that changes its tensor to the result of a function; of an operator, ``symbol``
    is how it is written.
    """
    what = symbol or f"{function.__name__}_"

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return assign(self, function(self, *args, **kwargs), what)

    method.__name__ = method.__qualname__ = what
    method.__doc__ = f"{function.__doc__}\n\nIn place: returns the tensor."
    return method


class InPlace:
    """In-place forms, which return the tensor."""

    __slots__ = ()

    __iadd__, __isub__ = in_place(e.add, "+="), in_place(e.sub, "-=")
    __imul__, __itruediv__ = in_place(e.mul, "*="), in_place(e.div, "/=")
    __ifloordiv__, __imod__ = in_place(e.floor_divide, "//="), in_place(e.remainder, "%=")
    __ipow__ = in_place(e.pow, "**=")
    __iand__, __ior__, __ixor__ = (
        in_place(g.bitwise_and, "&="), in_place(g.bitwise_or, "|="), in_place(g.bitwise_xor, "^="))
    __ilshift__, __irshift__ = (
        in_place(g.bitwise_left_shift, "<<="), in_place(g.bitwise_right_shift, ">>="))

    add_, sub_, mul_, div_ = in_place(e.add), in_place(e.sub), in_place(e.mul), in_place(e.div)
    subtract_, multiply_, divide_ = sub_, mul_, div_
    pow_, floor_divide_, remainder_ = (
        in_place(e.pow), in_place(e.floor_divide), in_place(e.remainder))
    fmod_ = in_place(e.fmod)
    neg_, abs_, sign_ = in_place(e.neg), in_place(e.abs), in_place(e.sign)
    exp_, log_, sqrt_, rsqrt_ = (
        in_place(e.exp), in_place(e.log), in_place(e.sqrt), in_place(e.rsqrt))
    relu_, sigmoid_, tanh_ = in_place(e.relu), in_place(e.sigmoid), in_place(e.tanh)
    sin_, cos_, square_ = in_place(e.sin), in_place(e.cos), in_place(e.square)
    reciprocal_ = in_place(e.reciprocal)
    floor_, ceil_, round_, trunc_ = (
        in_place(e.floor), in_place(e.ceil), in_place(e.round), in_place(e.trunc))
    clamp_, lerp_ = in_place(e.clamp), in_place(e.lerp)
    addcmul_, addcdiv_ = in_place(e.addcmul), in_place(e.addcdiv)
    logical_and_, logical_or_, logical_xor_ = (
        in_place(g.logical_and), in_place(g.logical_or), in_place(g.logical_xor))
    bitwise_and_, bitwise_or_, bitwise_xor_ = (
        in_place(g.bitwise_and), in_place(g.bitwise_or), in_place(g.bitwise_xor))
    masked_fill_ = in_place(s.masked_fill)
    scatter_, scatter_add_ = in_place(h.scatter), in_place(h.scatter_add)
    index_add_, index_fill_ = in_place(h.index_add), in_place(h.index_fill)

    def zero_(self) -> Any:
        """All elements 0."""
        return self.fill_(0)

    @checked
    def fill_(self, value: Any) -> Any:
        """All elements ``value``."""
        spec = spec_of_cell(self)  # type: ignore[arg-type]
        number = as_node(value, spec.dtype)
        number = moved(e.cast(number, spec.dtype), spec.device)
        attrs = {"shape": spec.shape}
        full: Node = record("full", (number,), attrs)
        check_in_place(self, "fill_", fills=True)  # type: ignore[arg-type]
        bind(self, full)  # type: ignore[arg-type]
        return self

    @checked
    def copy_(self, src: Any, non_blocking: bool = False) -> Any:  # noqa: ARG002 - torch's argument
        """The elements of ``src``, broadcast and converted to the dtype of this tensor."""
        check_in_place(self, "copy_")  # type: ignore[arg-type]
        spec = spec_of_cell(self)  # type: ignore[arg-type]
        node = moved(e.cast(as_node(src, spec.dtype), spec.dtype), spec.device)
        if node.sig.out.shape != spec.shape:
            node = record("broadcast_to", (node,), {"shape": spec.shape})
        if node.sig.kind == CONSTANT:  # an array, which is now that of a tensor
            node = value_node(node.value, spec.dtype)
        bind(self, node)  # type: ignore[arg-type]
        return self
