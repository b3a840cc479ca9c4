"""Lookups in tables of constants, and receives without a send."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.compat.graphdef.resources import rendezvous_name
from weft.ir.expr import Constant, Expr

_CONTENTS = 2  # operands of a lookup whose table is known: keys and values


@converts("LookupTableFind", "LookupTableFindV2", attributes=("Tin", "Tout"), outputs=("values",))
def find(node: Node) -> Expr:
    """The values of keys, by binary search; a key that the table lacks gives the default."""
    if len(node.inputs) != _CONTENTS + 2:
        raise _unknown(node)
    keys, values = _contents(node)
    query, default = node.input(2), node.input(3)
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    if not len(keys):
        missing = node.call(op.zeros, shape=node.shape(2), dtype=node.type(3).dtype)
        return node.call(op.add, missing, default)
    place = node.call(op.searchsorted, keys, query)
    place = node.call(op.minimum, place, node.scalar_like(len(keys) - 1, place))
    is_there = node.call(op.equal, node.call(op.take, keys, place, axis=0), query)
    return node.call(op.where, is_there, node.call(op.take, values, place, axis=0), default)


@converts("LookupTableSize", "LookupTableSizeV2", outputs=("size",))
def size(node: Node) -> Expr:
    if len(node.inputs) != _CONTENTS:
        raise _unknown(node)
    return node.constant(np.int64(len(_contents(node)[0])), "int64")


def _contents(node: Node) -> tuple[np.ndarray, np.ndarray]:
    """The keys and values of the table."""
    found = [value.data if isinstance(value, Constant) else None for value in node.inputs[:2]]
    keys, values = found
    if keys is None or values is None:
        raise node.unsupported("a table needs keys and values that are constants",
                               got="computed ones")
    if keys.ndim != 1 or values.shape != keys.shape:
        raise node.unsupported("a table needs one key and one value in each place",
                               got=f"keys {keys.shape}, values {values.shape}")
    if len(np.unique(keys)) < len(keys):
        raise node.fail("a table has a key twice")
    return np.asarray(keys), np.asarray(values)


def _unknown(node: Node) -> Exception:
    return node.unsupported("no node initializes the table of a lookup",
                            help="read the initializer with the graph, as in a SavedModel")


@converts("_Recv", "_HostRecv", "Recv", "HostRecv", attributes=(
    "tensor_type", "tensor_name", "send_device", "recv_device", "send_device_incarnation",
    "client_terminated", "dtype"), outputs=("tensor",))
def receive(node: Node) -> NoReturn:
    raise node.unsupported(
        f"tensor {rendezvous_name(node.proto)!r} is received, and no node of the graph sends it",
        got=str(node.proto.attrs.get("send_device", "")) or None,
        help=f'read the graphs of all devices as one, or feed it: '
             f'inputs={{"{node.proto.name}": (2, 3)}}')
