"""Tuples as flat lists of their tensors, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from weft.ir import Expr, Tuple, TupleGetItem, TupleType
from weft.op.cut_axes import tensor_types

V = TypeVar("V")


def tensors_of_tree(x: Expr) -> list[Expr]:
    """The tensors of nested tuples."""
    return [t for f in x.fields for t in tensors_of_tree(f)] if isinstance(x, Tuple) else [x]


def values_of_tuple(node: Tuple | TupleGetItem, values: Mapping[Expr, Sequence[V]]) -> list[V]:
    """What ``values`` has for the tensors of a tuple or of one of its fields."""
    if isinstance(node, Tuple):
        return [v for field in node.fields for v in values[field]]
    whole = node.tuple_value.checked_type
    assert isinstance(whole, TupleType)
    first = sum(len(tensor_types(t)) for t in whole.fields[:node.index])
    count = len(tensor_types(node.checked_type))
    return list(values[node.tuple_value][first:first + count])
