"""Nodes on devices: copies to another one, and constants that go where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.eager.cell import MODE
from weft.eager.device import CPU, copied, device, get_default_device, on_host
from weft.eager.dtypes import dtype
from weft.eager.node import (
    ALIAS,
    CALL,
    CONSTANT,
    FIELD,
    NUMBER,
    PACK,
    RECORDED,
    Node,
    alias_signature,
    call_signature,
    common_device,
    field_signature,
    is_value,
    number_node,
    pack_signature,
    paired,
    scalar_node,
    spec_of,
    transfer_signature,
    user_site,
    value_node,
)

PLACED = "placed"  # in ``Node.extra`` of the number that a tensor is filled with


def moved(node: Node, where: device) -> Node:
    """The node on a device; a copy through which gradients flow, unless it is there."""
    spec = node.sig.out
    if spec.device is where:
        return node
    if node.sig.kind == NUMBER:
        return number_node(node.value, spec.dtype, where)
    made = Node(transfer_signature(spec, where), (node,), None, user_site())
    if MODE.grad and node.grad is not None:
        made.grad = RECORDED
    if MODE.trace is None and is_value(node):
        made.value = copied(host_value(node), CPU, where)
        if made.grad is None:
            made.args = ()
    return made


def host_value(node: Node) -> np.ndarray:
    """The value of a node that has one, as an array of the host."""
    spec = node.sig.out
    if node.sig.kind == NUMBER:
        return np.asarray(node.value, spec.dtype.numpy)
    return on_host(node.value, spec.device)


def new_value(array: np.ndarray, d: dtype) -> Node:
    """The node of a new tensor with these elements on the default device."""
    where = get_default_device()
    if where is not CPU:
        array = copied(paired(array) if d.is_complex else array, CPU, where)
    return value_node(array, d, where)


def filling(value: Any, d: dtype) -> Node:
    """The number that a new tensor on the default device is filled with."""
    node = scalar_node(value, d, get_default_device())
    node.extra = PLACED
    return node


def together(nodes: Sequence[Node], name: str) -> tuple[Node, ...]:
    """The operands of a call on one device: that of those that are no constants.

    Raises ``DeviceMismatchError`` for tensors of several devices.
    """
    constant = [_is_constant(node) for node in nodes]
    where = common_device([node.sig.out for node, is_free in zip(nodes, constant, strict=True)
                           if not is_free], name)
    known: dict[Node, Node] = {}
    return tuple([_relocated(node, where, known) if is_free else node
                  for node, is_free in zip(nodes, constant, strict=True)])


def beside(node: Node, where: device) -> Node:
    """A constant as one of a device; a tensor as it is."""
    if where is CPU or not _is_constant(node):
        return node
    return _relocated(node, where, {})


def _is_constant(node: Node) -> bool:
    """Whether a node is made of numbers and arrays alone: of no tensor, but ones of the CPU without
    axes, which go with every device.
    """
    stack = [node]
    while stack:
        one = stack.pop()
        kind = one.sig.kind
        if kind == CONSTANT or _goes_along(one):
            continue
        if kind not in (CALL, FIELD, PACK, ALIAS) or len(one.args) != len(one.sig.args):
            return False
        stack += one.args
    return True


def _goes_along(node: Node) -> bool:
    spec = node.sig.out
    return spec.device is CPU and not spec.shape and spec.fields is None and node.extra != PLACED


def _relocated(node: Node, where: device, known: dict[Node, Node]) -> Node:
    """The constant ``node``, made on another device."""
    found = known.get(node)
    if found is None:
        found = known[node] = _remade(node, where, known)
    return found


def _remade(node: Node, where: device, known: dict[Node, Node]) -> Node:
    sig = node.sig
    if sig.out.device is where or _goes_along(node):
        return node
    if sig.kind == CONSTANT:
        return moved(node, where)
    args = tuple([_relocated(arg, where, known) for arg in node.args])
    if sig.kind == FIELD:
        sig = field_signature(args[0].sig.out, sig.attrs)
    elif sig.kind == PACK:
        sig = pack_signature(tuple([arg.sig.out for arg in args]))
    elif sig.kind == ALIAS:
        sig = alias_signature(args[0].sig.out, spec_of(sig.out.shape, sig.out.dtype, where))
    else:
        assert sig.op is not None
        sig = call_signature(sig.op.name, dict(sig.attrs.items()), sig.attrs, args, where)
    made = Node(sig, args, None, node.site)
    made.check = node.check
    return made
