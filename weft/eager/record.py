"""Recording: an operator applied to tensors becomes a node, without running."""

from __future__ import annotations

import sys
import weakref
from typing import Any

import numpy as np

from weft.eager.cell import MODE, Cell, node_of
from weft.eager.dtypes import as_dtype, dtype, get_default_dtype, of_ir
from weft.eager.evaluate import AUTO_CUT, flush
from weft.eager.node import (
    PACK,
    PACKAGE_ROOT,
    RECORDED,
    ComplexOperandError,
    DeviceMismatchError,
    Node,
    Signature,
    call_signature,
    constant_node,
    field_signature,
    pack_signature,
    scalar_node,
    user_site,
)
from weft.eager.placement import together
from weft.eager.promotion import dtype_of_number, wrapped
from weft.runtime.ndarray import from_dlpack
from weft.support.errors import InvalidInputError


def apply(op: str, *operands: Any, **attrs: Any) -> Any:
    """Record one operator of the catalogue on tensors, arrays and numbers.

    ``op`` is the operator's name (docs/operators), ``attrs`` its attributes. An operator on a tuple
    of tensors takes them one by one: ``apply("concatenate", x, y, axis=0)``. Returns a tensor, or a
    tuple of tensors. A Python number becomes a scalar tensor of the default dtype; no operand is
    promoted. Raises the errors of the operator's type relation at the user's line.
    """
    return wrap(record(op, tuple([as_node(x) for x in operands]), attrs))


def record(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """The node of a call on these nodes."""
    key = attrs_key(attrs) if attrs else None
    try:
        sig = call_signature(op, attrs, key, nodes)
    except ComplexOperandError:
        pass
    except DeviceMismatchError:
        nodes = together(nodes, op)
        return made(call_signature(op, attrs, key, nodes), nodes)
    else:
        return made(sig, nodes)
    return Cell.lowered(op, nodes, attrs)  # type: ignore[no-any-return]


def made(sig: Signature, nodes: tuple[Node, ...]) -> Node:
    """The node of a call whose signature is known."""
    node = Node(sig, nodes, None, user_site())
    for arg in nodes:
        if arg.grad is not None:
            if sig.differentiable and MODE.grad:
                node.grad = RECORDED
            break
    return node


_OUTSIDE: set[str] = set()  # files of users


def recorded(sig: Signature, nodes: tuple[Node, ...], inner: int = 3) -> Any:
    """The tensor of a call with one result whose signature is known: ``wrap(made(sig, nodes))``.

    The nearest ``inner`` frames, this one included, belong to weft: the caller's frame, and
    that of the function of weft that called it.
    """
    frame = sys._getframe(inner)  # noqa: SLF001 - as documented
    code = frame.f_code
    site: Any = (code, frame.f_lasti)
    if code.co_filename not in _OUTSIDE:
        if code.co_filename.startswith(PACKAGE_ROOT):
            site = user_site(inner)
        else:
            _OUTSIDE.add(code.co_filename)
    node = Node(sig, nodes, None, site)
    for arg in nodes:
        if arg.grad is not None:
            if sig.differentiable and MODE.grad:
                node.grad = RECORDED
            break
    cell = object.__new__(Cell.plain)  # as ``new_cell``
    cell._node = node
    cell._grad = cell._hooks = cell._view = cell._memory = None
    mode = MODE
    if mode.trace is not None:
        mode.trace.made(cell)
        return cell
    pending = mode.pending
    pending.append(weakref.ref(cell))
    if len(pending) > AUTO_CUT:
        flush()
    return cell


def wrap(node: Node) -> Any:
    """The tensor of a node; for a tuple of tensors, a tuple."""
    fields = node.sig.out.fields
    if fields is not None:
        return tuple([wrap(field(node, i)) for i in range(len(fields))])
    mode = MODE
    cell = Cell.made(node)
    if mode.trace is not None:
        mode.trace.made(cell)
    elif node.value is None:
        mode.pending.append(weakref.ref(cell))
        if len(mode.pending) > AUTO_CUT:
            flush()
    return cell


def field(node: Node, index: int) -> Node:
    """The node of a field of a tuple."""
    if node.sig.kind == PACK and node.args:
        return node.args[index]
    found = made(field_signature(node.sig.out, index), (node,))
    if node.value is not None and node.value[index] is not None:
        found.value = node.value[index]
    return found


def pack(nodes: tuple[Node, ...]) -> Node:
    """The node of a tuple of tensors."""
    try:
        sig = pack_signature(tuple([n.sig.out for n in nodes]))
    except DeviceMismatchError:
        nodes = together(nodes, "a tuple")
        sig = pack_signature(tuple([n.sig.out for n in nodes]))
    return made(sig, nodes)


def attrs_key(attrs: dict[str, Any]) -> Any:
    """A hashable form of attributes; 0.0 and -0.0 differ."""
    try:
        key = tuple(attrs.items())
        hash(key)
    except TypeError:
        return tuple([(name, _frozen(value)) for name, value in attrs.items()])
    for value in attrs.values():
        if value == 0 and type(value) is float:
            return tuple([(name, _frozen(one)) for name, one in attrs.items()])
    return key


def _frozen(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return repr(value) if isinstance(value, float) else value


def as_node(value: Any, d: dtype | None = None) -> Node:
    """The node of an operand: a tensor, an array, a number, or a tuple of them.

    ``d`` is the dtype of a number. Raises ``InvalidInputError`` for other objects.
    """
    if isinstance(value, Cell):
        return node_of(value)
    if isinstance(value, (bool, int, float, complex)):
        return scalar_node(value if d is None else wrapped(value, d), d or dtype_of_number(value))
    if isinstance(value, (tuple, list)) and any(isinstance(v, Cell) for v in value):
        return pack(tuple(map(as_node, value)))
    return constant_node(*as_array(value, d))


def as_array(value: Any, d: dtype | None = None) -> tuple[np.ndarray, dtype]:
    """A new C-contiguous array with the elements of ``value``, and its dtype.

    Python floats become the default dtype, ints int64. ``d`` converts. Raises
    ``InvalidInputError`` for what is not an array of numbers.
    """
    if not isinstance(value, (np.ndarray, np.generic)):
        if hasattr(value, "__dlpack__"):
            value = from_dlpack(value)
        elif not hasattr(value, "__array_interface__"):
            plain = _numbers(value)
            if d is None and plain.dtype in (np.float64, np.complex128):
                d = get_default_dtype()
                d = d if plain.dtype == np.float64 else d.to_complex()
            value = plain
    array = np.asarray(value)
    try:
        found = d if d is not None else of_ir(as_dtype(array.dtype).ir)
        return np.array(array, found.numpy, order="C", copy=True), found
    except (TypeError, ValueError) as error:
        raise InvalidInputError("the elements cannot be those of a tensor", got=str(error),
                                expected="numbers or booleans") from None


def _numbers(value: Any) -> np.ndarray:
    """Nested sequences of numbers and tensors as an array."""
    if isinstance(value, (list, tuple)) and any(isinstance(v, (Cell, list, tuple)) for v in value):
        value = [_numbers(v) if isinstance(v, (list, tuple)) else np.asarray(v) for v in value]
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidInputError("the nested lists are not of equal lengths",
                                got=str(error)) from None
    if array.dtype.kind in "OUSVmM" and array.dtype.name != "bfloat16":
        if array.dtype.kind == "V" and array.dtype.names is None:
            return array  # a dtype of ml_dtypes
        raise InvalidInputError("the elements cannot be those of a tensor",
                                got=f"{type(value).__name__}, {array.dtype}",
                                expected="numbers or booleans")
    return array


__all__ = ["apply", "as_node", "record", "wrap"]
