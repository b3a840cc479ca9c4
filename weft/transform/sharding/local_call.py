"""A call on the parts of its operands that one device holds."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from weft import te
from weft.ir import Attrs, Call, Expr, Op, Type, infer_expr
from weft.ir.types import TensorType
from weft.support.errors import WeftError
from weft.te.tensor import ComputeOp, IterVar
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, int_value
from weft.topi.nn.conv import full_padding
from weft.transform.analysis.graph import is_reshape
from weft.transform.sharding.index_maps import stages, tensors_of
from weft.transform.sharding.windows import Padding, padding_of


def local_call(call: Call, args: Sequence[Expr], expected: Type,
               windows: Sequence[tuple[int, int]] = (), *, is_padded: bool = False
               ) -> Call | None:
    """``call`` on local operands, of the type ``expected``, computing the same formula.

    Attributes that repeat a size of the result (``newshape``, ``groups``) get the local one.
    ``windows`` are the dimensions (operand, dimension) that arrive with their padding. With
    ``is_padded``, operands that have grown are padded by the operator as the whole ones are.
    ``None`` if no call gives that type, or if a constant of the formula depends on the size of a
    dimension that is cut, as the divisor of a mean does.
    """
    for attrs in _attributes(call, expected, len(windows)):
        made = call.replace(args=tuple(args), attrs=attrs, checked_type=None)
        try:
            typed = infer_expr(made, trust=True)
        except WeftError:
            continue
        if isinstance(typed, Call) and typed.checked_type == expected \
                and (is_reshape(call) or _states_axes(call)
                     or _is_same_formula(call, typed, windows, is_padded=is_padded)):
            return typed
    return None


def _attributes(call: Call, expected: Type, unpadded: int = 0) -> Iterator[Attrs]:
    for attrs in _unpadded(call.attrs, unpadded):
        yield from _resized(call, attrs, expected)


def _unpadded(attrs: Attrs, axes: int) -> Iterator[Attrs]:
    """The attributes, and then without padding along so many axes, whichever they are."""
    yield attrs
    padding = getattr(attrs, "padding", None)
    window = next((getattr(attrs, f) for f in ("strides", "dilation") if hasattr(attrs, f)), ())
    if axes and isinstance(padding, tuple) and isinstance(window, tuple) and window:
        full = full_padding(padding, len(window))
        for chosen in itertools.combinations(range(len(window)), axes):
            yield attrs.replace(padding=tuple(0 if n % len(window) in chosen else p
                                              for n, p in enumerate(full)))


def _resized(call: Call, attrs: Attrs, expected: Type) -> Iterator[Attrs]:
    yield attrs
    whole, part = (t.shape if isinstance(t, TensorType) else () for t in
                   (call.checked_type, expected))
    sizes = {a: b for a, b in zip(whole, part, strict=True) if a != b}
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(attrs):
        value = getattr(attrs, field.name)
        if value == whole or (is_reshape(call) and field.name == "newshape"):
            changes[field.name] = part
        elif type(value) is int and value in sizes:
            changes[field.name] = sizes[value]
    if changes and sizes:
        yield attrs.replace(**changes)


def _states_axes(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.hook("cut_axes") is not None


def _is_same_formula(whole: Call, part: Call, windows: Sequence[tuple[int, int]] = (), *,
                     is_padded: bool = False) -> bool:
    """Whether both tensor expressions differ only in the sizes of their axes.

    Along the dimensions of ``windows``, the first one pads and the second one does not.
    """
    first, second = tensors_of(whole), tensors_of(part)
    if first is None or second is None:
        return False
    tensors = dict(zip(first[0], second[0], strict=True))
    if windows or is_padded:
        ours, theirs = _paddings(first), _paddings(second)
        for n, (a, b) in enumerate(zip(first[0], second[0], strict=True)):
            given, left = ours.get(a), theirs.get(b)
            kept = _unpadded_widths(given, {d for m, d in windows if m == n}, a.ndim)
            if kept != _unpadded_widths(left, set(), b.ndim) \
                    or (given and left and given[1].fill != left[1].fill):
                return False
            if given is not None:
                tensors[given[0]] = left[0] if left is not None else b
        padded = {t for found in (ours, theirs) for t, _ in found.values()}
        return _Comparison(tensors, padded).compare(first[1], second[1])
    return _Comparison(tensors).compare(first[1], second[1])


def _paddings(built: tuple[list[te.Tensor], list[te.Tensor]]
              ) -> dict[te.Tensor, tuple[te.Tensor, Padding]]:
    """The padded tensor of each operand that a stage pads."""
    return {found.source: (stage.outputs[0], found) for stage in stages(built[1])
            if (found := padding_of(stage)) is not None and stage.outputs[0] not in built[1]}


def _unpadded_widths(given: tuple[te.Tensor, Padding] | None, along: set[int], ndim: int
                     ) -> list[tuple[int, int]]:
    widths = given[1].widths if given is not None else ((0, 0),) * ndim
    return [(0, 0) if d in along else width for d, width in enumerate(widths)]


class _Comparison:
    """Compares stage by stage. An index into a dimension of size 1 may have become 0.

    The tensors of ``given`` count as operands: the stages that make them are not compared.
    """

    def __init__(self, tensors: dict[te.Tensor, te.Tensor], given: Collection[te.Tensor] = ()
                 ) -> None:
        self._tensors = tensors
        self._given = given
        self._vars: dict[x.Var, x.Var] = {}

    def compare(self, whole: Sequence[te.Tensor], part: Sequence[te.Tensor]) -> bool:
        ours, theirs = ([s for s in stages(outputs)
                         if isinstance(s, ComputeOp) and s.outputs[0] not in self._given]
                        for outputs in (whole, part))
        if len(ours) != len(theirs):
            return False
        for a, b in zip(ours, theirs, strict=True):
            if len(a.axis) != len(b.axis) or len(a.reduce_axis) != len(b.reduce_axis) \
                    or len(a.body) != len(b.body):
                return False
            self._vars |= {i.var: j.var for i, j in zip((*a.axis, *a.reduce_axis),
                                                        (*b.axis, *b.reduce_axis), strict=True)}
            if not all(map(self._same, a.body, b.body)):
                return False
            self._tensors |= dict(zip(a.outputs, b.outputs, strict=True))
        return [self._tensors.get(t) for t in whole] == list(part)

    def _same(self, a: Any, b: Any) -> bool:
        pending, seen = [(a, b)], set()
        while pending:
            a, b = pending.pop()
            if (a, b) in seen:
                continue
            if isinstance(a, x.Var):
                if self._vars.get(a, a) is not b:
                    return False
            elif isinstance(a, x.ProducerLoad):
                if not isinstance(b, x.ProducerLoad) or self._tensors.get(a.producer) \
                        is not b.producer:
                    return False
                pending += [(i, j) for i, j, size in zip(a.indices, b.indices, b.producer.shape,
                                                         strict=True) if int_value(size) != 1]
            elif isinstance(a, (tuple, list)):
                if not isinstance(b, (tuple, list)) or len(a) != len(b):
                    return False
                pending += zip(a, b, strict=True)
            elif isinstance(a, x.CommReducer):
                pending.append((a.identity, b.identity))
            elif isinstance(a, PrimExpr):
                if type(a) is not type(b) or a.dtype is not b.dtype:
                    return False
                pending += [(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a)]
            elif not isinstance(a, IterVar) and a != b and not (_is_nan(a) and _is_nan(b)):
                return False
            if isinstance(a, PrimExpr):
                seen.add((a, b))
        return True


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
