"""Calls of operators on complex tensors, recorded as calls on the two parts.

The module ``complex_pairs`` says how complex tensors are laid out; the table of
``weft.op.composites.complex_numbers`` says what operators are for pairs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.eager.complex_pairs import as_complex, as_pair
from weft.eager.dtypes import as_dtype
from weft.eager.emitter import TENSORS
from weft.eager.node import ALIAS, CALL, CONSTANT, Node, scalar_node, user_span
from weft.eager.record import as_node, field, pack, record, wrap
from weft.eager.views import permuted, reshaped, sliced
from weft.op.composites.complex_arithmetic import is_true
from weft.op.composites.complex_numbers import (
    COMPOSITES,
    acts_on_parts,
    attributes_of_pairs,
    is_product,
)
from weft.support.errors import InvalidInputError

Rule = Callable[[str, tuple[Node, ...], dict[str, Any]], Node]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    """Register what records these operators."""
    def note(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return note


class ComplexError(InvalidInputError):
    """An operator has no meaning, or none yet, for complex numbers."""


def lowered(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """The node of a call with a complex operand or result. Raises ``ComplexError``."""
    rule = _RULES.get(op)
    if rule is not None:
        return rule(op, nodes, attrs)
    composite = COMPOSITES.get(op)
    if composite is not None and not attrs:
        return _node_of(composite(TENSORS, *[parts(node) for node in nodes]))
    if is_product(op):
        return _node_of(_bilinear(op, nodes, attrs))
    if acts_on_parts(op):
        return _by_parts(op, nodes, attrs)
    raise refusal(op)


def refusal(op: str) -> ComplexError:
    """The error of an operator that complex numbers do not have."""
    return ComplexError(f"{op} of complex numbers", where=user_span(), expected="a real tensor",
                        help="take z.real, z.imag or z.abs(), or compute on weft.view_as_real(z)")


def joined(real: Any, imag: Any) -> Node:
    """The complex numbers of two parts of one shape."""
    parts = tuple([part if part.__class__ is Node else as_node(part) for part in (real, imag)])
    return as_complex(record("stack", parts, {"axis": len(parts[0].sig.out.shape)}))


def _node_of(found: Any) -> Node:
    return joined(*found) if isinstance(found, tuple) else as_node(found)


def parts(node: Node) -> tuple[Any, Any]:
    """The two parts as tensors; those of a real tensor with zeros."""
    if not node.sig.out.dtype.is_complex:
        return wrap(node), TENSORS.call("zeros_like", wrap(node))
    return _part(node, 0), _part(node, 1)


def _part(node: Node, index: int) -> Any:
    """One part of complex numbers, as a tensor."""
    spec = node.sig.out
    if not spec.shape and node.sig.kind == CONSTANT:
        return wrap(scalar_node(node.value[index].item(), spec.dtype.to_real()))
    made = node.args[0] if node.sig.kind == ALIAS and node.args and node.grad is None else None
    if made is not None and made.sig.kind == CALL and made.args and made.sig.name == "stack" \
            and made.sig.attrs.axis == len(spec.shape):
        return wrap(made.args[index])
    whole = (*[(0, size, 1) for size in spec.shape], (index, index + 1, 1))
    return wrap(reshaped(sliced(as_pair(node), whole), spec.shape))


# -- families --------------------------------------------------------------------------------------


def _bilinear(op: str, nodes: Sequence[Node], attrs: dict[str, Any]) -> Any:
    """A product of two or more operands."""
    if not any(node.sig.out.dtype.is_complex for node in nodes):
        return wrap(record(op, tuple(nodes), attrs))
    at = next(i for i, node in enumerate(nodes) if node.sig.out.dtype.is_complex)
    real, imag = [_bilinear(op, (*nodes[:at], as_node(_part(nodes[at], i)), *nodes[at + 1:]), attrs)
                  for i in (0, 1)]
    if not isinstance(real, tuple):
        return real, imag
    return real[0] - imag[1], real[1] + imag[0]


def _by_parts(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """An operator whose result has parts made of the same parts."""
    whole = _on_pairs(op, nodes, attrs)
    if whole is not None:
        return whole
    found = []
    for index in (0, 1):
        own = tuple([_same_part(node, index) for node in nodes])
        found.append(record(op, own, attrs))
    if found[0].sig.out.fields is None:
        return joined(*found)
    return pack(tuple([joined(field(found[0], i), field(found[1], i))
                       for i in range(len(found[0].sig.out.fields))]))


def _same_part(node: Node, index: int) -> Node:
    """A part of floats; other operands, such as indices, are those of both parts."""
    d = node.sig.out.dtype
    if d.is_complex:
        return as_node(_part(node, index))
    if index and d.is_floating_point:
        return as_node(TENSORS.call("zeros_like", wrap(node)))
    return node


def _on_pairs(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node | None:
    """One call on the tensors that hold both parts, if the operator leaves the last axis alone."""
    specs = [node.sig.out for node in nodes]
    moved = [s for s in specs if s.dtype.is_complex]
    if op in _SUMS:
        if len({(s.shape, s.dtype) for s in specs}) != 1:
            return None
        changed: dict[str, Any] | None = attrs
    elif len(moved) == len(nodes) or op in _INDEXED:
        changed = attributes_of_pairs(op, attrs, len(moved[0].shape))
    else:
        return None
    if changed is None:
        return None
    found = record(op, tuple([as_pair(n) if n.sig.out.dtype.is_complex else n for n in nodes]),
                   changed)
    fields = found.sig.out.fields
    if fields is None:
        return as_complex(found)
    return pack(tuple([as_complex(field(found, i)) for i in range(len(fields))]))


_SUMS = ("add", "subtract")
_INDEXED = ("take", "gather_nd")


# -- operators that read their attributes, or the dtype --------------------------------------------


@_rule("cast")
def _cast(_op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """To another precision, from real numbers, or to them: the real part alone, as in torch."""
    node, d = nodes[0], as_dtype(attrs["dtype"])
    own = node.sig.out.dtype
    if own.is_complex and d.is_complex:
        return as_complex(record("cast", (as_pair(node),), {"dtype": d.to_real().ir}))
    if own.is_complex:
        if d.rank == 0:
            return as_node(is_true(TENSORS, parts(node)))
        _warn_of_discarded_parts()
        return record("cast", (as_node(_part(node, 0)),), {"dtype": d.ir})
    real = node
    if own is not d.to_real():
        real = record("cast", (node,), {"dtype": d.to_real().ir})
    return joined(real, TENSORS.call("zeros_like", wrap(real)))


def _warn_of_discarded_parts() -> None:
    """Once for each line of the user that converts complex numbers to real ones."""
    span = user_span()
    place = ("weft", 0) if span is None else (span.source, span.line or 0)
    warnings.warn_explicit("the imaginary part is discarded: complex numbers become real ones",
                           np.exceptions.ComplexWarning, *place,
                           registry=globals().setdefault("__warningregistry__", {}))


@_rule("zeros", "ones", "ones_like")
def _created(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """A tensor of one real number; of the dtype of the attribute, or of the operand."""
    d = as_dtype(attrs["dtype"]) if "dtype" in attrs else nodes[0].sig.out.dtype
    given = {**attrs, "dtype": d.to_real().ir} if "dtype" in attrs else attrs
    own = tuple([as_node(_part(n, 0)) if n.sig.out.dtype.is_complex else n for n in nodes])
    real = record(op, own, given)
    return joined(real, TENSORS.call("zeros_like", wrap(real)))


@_rule("where")
def _where(_op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """The condition, which may be complex itself, chooses in both parts."""
    condition = nodes[0]
    if condition.sig.out.dtype.is_complex:
        condition = as_node(is_true(TENSORS, parts(condition)))
    if not any(node.sig.out.dtype.is_complex for node in nodes[1:]):
        return record("where", (condition, *nodes[1:]), attrs)
    return _by_parts("where", (condition, *nodes[1:]), attrs)


@_rule("all", "any")
def _reduced_truth(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """``all`` and ``any`` of numbers that are not zero."""
    return record(op, (as_node(is_true(TENSORS, parts(nodes[0]))),), attrs)


@_rule("scatter_elements")
def _scattered(op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """Values written, or added, at positions."""
    if attrs.get("reduction", "update") not in ("update", "add"):
        raise refusal(f"{op} with {attrs['reduction']}")
    return _by_parts(op, nodes, attrs)


@_rule("prod")
def _product(_op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """The product along axes: of the first half by the second, until one is left."""
    shape, axis = nodes[0].sig.out.shape, attrs.get("axis")
    rank = len(shape)
    axes = sorted([a % rank for a in ([axis] if isinstance(axis, int) else range(rank)
                                      if axis is None else axis)])
    rest = [a for a in range(rank) if a not in axes]
    x = wrap(permuted(nodes[0], (*axes, *rest)))
    x = x.reshape(math.prod([shape[a] for a in axes]), *[shape[a] for a in rest])
    if not x.shape[0]:
        x = full_of_ones(x)
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        made = x[:half] * x[half:2 * half]
        x = made if x.shape[0] == 2 * half else _joined_along((made, x[2 * half:]))
    kept = tuple([1 if a in axes else size for a, size in enumerate(shape)])
    return as_node(x.reshape(kept if attrs.get("keepdims") else [shape[a] for a in rest]))


def full_of_ones(x: Any) -> Any:
    """A row of ones for the product of no elements."""
    ones = (scalar_node(1, x.dtype),)
    return wrap(record("full", ones, {"shape": (1, *x.shape[1:])}))


@_rule("cumprod")
def _running_product(_op: str, nodes: tuple[Node, ...], attrs: dict[str, Any]) -> Node:
    """The cumulative product: in each step, the products of twice as many elements."""
    x = wrap(nodes[0]).movedim(attrs["axis"], 0)
    step = 1
    while step < x.shape[0]:
        x = _joined_along((x[:step], x[step:] * x[:-step]))
        step *= 2
    return as_node(x.movedim(0, attrs["axis"]))


def _joined_along(parts: tuple[Any, ...]) -> Any:
    return wrap(record("concatenate", tuple(map(as_node, parts)), {"axis": 0}))


__all__ = ["ComplexError", "joined", "lowered", "parts", "refusal"]
