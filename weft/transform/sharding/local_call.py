"""A call on the parts of its operands that one device holds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from weft import te
from weft.ir import Attrs, Call, Expr, Op, Type, infer_expr
from weft.ir.types import TensorType
from weft.support.errors import WeftError
from weft.te.tensor import ComputeOp, IterVar
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, int_value
from weft.transform.analysis.graph import is_reshape
from weft.transform.sharding.index_maps import stages, tensors_of


def local_call(call: Call, args: Sequence[Expr], expected: Type) -> Call | None:
    """``call`` on local operands, of the type ``expected``, computing the same formula.

    Attributes that repeat a size of the result (``newshape``, ``groups``) get the local one.
    ``None`` if no call gives that type, or if a constant of the formula depends on the size of a
    dimension that is cut, as the divisor of a mean does.
    """
    for attrs in _attributes(call, expected):
        made = call.replace(args=tuple(args), attrs=attrs, checked_type=None)
        try:
            typed = infer_expr(made, trust=True)
        except WeftError:
            continue
        if isinstance(typed, Call) and typed.checked_type == expected \
                and (is_reshape(call) or _states_axes(call) or _is_same_formula(call, typed)):
            return typed
    return None


def _attributes(call: Call, expected: Type) -> Iterator[Attrs]:
    yield call.attrs
    whole, part = (t.shape if isinstance(t, TensorType) else () for t in
                   (call.checked_type, expected))
    sizes = {a: b for a, b in zip(whole, part, strict=True) if a != b}
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(call.attrs):
        value = getattr(call.attrs, field.name)
        if value == whole or (is_reshape(call) and field.name == "newshape"):
            changes[field.name] = part
        elif type(value) is int and value in sizes:
            changes[field.name] = sizes[value]
    if changes and sizes:
        yield call.attrs.replace(**changes)


def _states_axes(call: Call) -> bool:
    return isinstance(call.op, Op) and call.op.hook("cut_axes") is not None


def _is_same_formula(whole: Call, part: Call) -> bool:
    """Whether both tensor expressions differ only in the sizes of their axes."""
    first, second = tensors_of(whole), tensors_of(part)
    if first is None or second is None:
        return False
    return _Comparison(dict(zip(first[0], second[0], strict=True))).compare(first[1], second[1])


class _Comparison:
    """Compares stage by stage. An index into a dimension of size 1 may have become 0."""

    def __init__(self, tensors: dict[te.Tensor, te.Tensor]) -> None:
        self._tensors = tensors
        self._vars: dict[x.Var, x.Var] = {}

    def compare(self, whole: Sequence[te.Tensor], part: Sequence[te.Tensor]) -> bool:
        ours, theirs = ([s for s in stages(outputs) if isinstance(s, ComputeOp)]
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
