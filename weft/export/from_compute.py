"""The compute of an operator as a program of simple operators.

An operator that a format has no word for is written by its definition: each tensor of its compute
becomes elementwise operators over the grid of its axes, reads become slices, transposes or
gathers, and reductions those of the axes of the grid. Indices that do not depend on data are
computed here, and are constants of the program.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import te
from weft.export.grid import Grid, as_expr, binary, read, unary
from weft.ir import OPS, Call, Op, TensorType, TupleType, get_op, infer_expr
from weft.ir.dynamic import depends_on_data
from weft.ir.expr import Expr, Tuple, TupleGetItem
from weft.ir.types import Type, is_static
from weft.ir.visitor import Routine, run_routine
from weft.support.dataclass import dataclass
from weft.te.tensor import ComputeOp, IterVar, PlaceholderOp
from weft.tir import expr as x
from weft.tir.intrinsics import INTRINSICS

# Larger grids would be written with constants or temporaries of that many elements.
MAX_GRID = 1 << 24
_Bound: TypeAlias = "Mapping[x.Var, Grid]"


class _NoFormError(Exception):
    """Part of a compute that the operators of the IR do not express."""


def compute_form(call: Call) -> Expr | None:
    """An equivalent of a call of static shapes in simple operators, typed; ``None`` without one."""
    op, types = call.op, [a.checked_type for a in call.args]
    if not isinstance(op, Op) or op.compute is None or depends_on_data(op) \
            or not all(map(_is_known, (*types, call.checked_type))):
        return None
    given: dict[te.Tensor, Expr] = {}
    args = [_placeholders(a, t, given, f"x{i}")
            for i, (a, t) in enumerate(zip(call.args, types, strict=True))]
    try:
        made = op.compute(*args, call.attrs)
        tensors = made if isinstance(made, tuple) else (made,)
        translation = _Translation(given)
        found = [run_routine(translation.tensor(t)) for t in tensors]
    except _NoFormError:
        return None
    result = infer_expr(found[0] if not isinstance(made, tuple) else Tuple(tuple(found)),
                        trust=True)
    return result if result.checked_type == call.checked_type else None


def _is_known(type_: Type | None) -> bool:
    return type_ is not None and is_static(type_)


def _placeholders(arg: Expr, type_: Type | None, given: dict[te.Tensor, Expr], name: str) -> Any:
    if isinstance(type_, TupleType):
        fields = arg.fields if isinstance(arg, Tuple) else \
            [TupleGetItem(arg, i).with_type(t) for i, t in enumerate(type_.fields)]
        return tuple(_placeholders(f, t, given, f"{name}_{i}")
                     for i, (f, t) in enumerate(zip(fields, type_.fields, strict=True)))
    if not isinstance(type_, TensorType):
        raise _NoFormError
    tensor = te.placeholder(type_.concrete_shape, type_.dtype, name=name)
    given[tensor] = arg
    return tensor


@dataclass(frozen=True, slots=True)
class _Frame:
    """The grid that an expression is computed over, and the values of variables."""

    shape: tuple[int, ...]
    bound: dict[x.Var, Grid]
    memo: dict[x.PrimExpr, Grid]

    def inside(self, bound: _Bound) -> _Frame:
        return _Frame(self.shape, {**self.bound, **bound}, {})


class _Translation:
    """Translates the tensors of one compute; each once."""

    def __init__(self, given: dict[te.Tensor, Expr]) -> None:
        self._tensors = given

    def tensor(self, tensor: te.Tensor) -> Routine[Expr]:
        """A whole tensor as an expression."""
        if tensor in self._tensors:
            return self._tensors[tensor]
        shape = _static(tensor.shape)
        if 0 in shape:
            return get_op("zeros")(shape=shape, dtype=tensor.dtype)
        if not isinstance(tensor.op, ComputeOp) or isinstance(tensor.op, PlaceholderOp):
            raise _NoFormError
        axes = (*tensor.op.axis, *tensor.op.reduce_axis)
        frame = _frame_of(axes)
        body = tensor.op.body[tensor.value_index]
        if isinstance(body, x.Reduce):
            value = yield self._reduced(body, frame, len(shape))
        else:
            value = yield self._value(body, frame)
        found = as_expr(value, tensor.dtype)
        self._tensors[tensor] = get_op("broadcast_to")(found, shape=shape)
        return self._tensors[tensor]

    def _reduced(self, e: x.Reduce, frame: _Frame, ndim: int) -> Routine[Grid]:
        sources: list[Expr] = []
        condition = yield self._value(e.condition, frame)
        for source, identity in zip(e.source, e.combiner.identity, strict=True):
            value = yield self._value(source, frame)
            if e.condition is not x.TRUE:
                neutral = yield self._value(identity, frame)
                value = _chosen(condition, value, neutral, source.dtype)
            sources.append(get_op("broadcast_to")(as_expr(value, source.dtype),
                                                  shape=frame.shape))
        axes = tuple(range(ndim, len(frame.shape)))
        simple = _simple_reduction(e)
        if simple is not None:
            return get_op(simple)(sources[0], axis=axes)
        return (yield self._folded(e, sources, frame.shape, ndim))

    def _folded(self, e: x.Reduce, sources: Sequence[Expr], shape: tuple[int, ...], ndim: int
                ) -> Routine[Grid]:
        """Combine halves of the reduced elements until one is left."""
        count, lead = math.prod(shape[ndim:]), shape[:ndim]
        if not count:
            raise _NoFormError
        values = [get_op("reshape")(s, newshape=(*lead, count), allowzero=True) for s in sources]
        while count > 1:
            half = count // 2
            parts = [[get_op("strided_slice")(v, begin=(a,), end=(b,), axes=(ndim,))
                      for a, b in ((0, half), (half, 2 * half), (2 * half, count))]
                     for v in values]
            bound = {**dict(zip(e.combiner.lhs, [p[0] for p in parts], strict=True)),
                     **dict(zip(e.combiner.rhs, [p[1] for p in parts], strict=True))}
            frame, values = _Frame((*lead, half), bound, {}), []
            for n, result in enumerate(e.combiner.result):
                value = yield self._value(result, frame)
                value = as_expr(value, result.dtype)
                rest = [parts[n][2]] if count % 2 else []
                values.append(get_op("concatenate")(Tuple((value, *rest)), axis=ndim))
            count = half + count % 2
        return get_op("reshape")(values[e.index], newshape=lead, allowzero=True)

    def _value(self, e: x.PrimExpr, frame: _Frame) -> Routine[Grid]:
        if e in frame.memo:
            return frame.memo[e]
        found: Grid = yield self._computed(e, frame)
        frame.memo[e] = found
        return found

    def _computed(self, e: x.PrimExpr, frame: _Frame) -> Routine[Grid]:
        if isinstance(e, x.Var):
            if e not in frame.bound:
                raise _NoFormError
            return frame.bound[e]
        if isinstance(e, (x.IntImm, x.FloatImm)):
            return np.asarray(e.value).astype(e.dtype.numpy)
        if isinstance(e, x.Let):
            value = yield self._value(e.value, frame)
            return (yield self._value(e.body, frame.inside({e.var: value})))
        if isinstance(e, x.ProducerLoad):
            return (yield self._read(e, frame))
        parts: list[Grid] = []
        for child in _operands(e):
            part = yield self._value(child, frame)
            parts.append(part)
        return _applied(e, parts)

    def _read(self, e: x.ProducerLoad, frame: _Frame) -> Routine[Grid]:
        source = yield self.tensor(e.producer)
        indices: list[Grid] = []
        for index in e.indices:
            position = yield self._value(index, frame)
            indices.append(position)
        found = read(source, _static(e.producer.shape), indices, len(frame.shape))
        if found is None:
            raise _NoFormError
        return found


def _frame_of(axes: Sequence[IterVar]) -> _Frame:
    shape = _static([a.extent for a in axes])
    if math.prod(shape) > MAX_GRID:
        raise _NoFormError
    bound: dict[x.Var, Grid] = {}
    for position, (axis, size) in enumerate(zip(axes, shape, strict=True)):
        first, = _static([axis.min])
        along = [1] * len(shape)
        along[position] = size
        bound[axis.var] = np.arange(first, first + size, dtype=np.int64).reshape(along)
    return _Frame(shape, bound, {})


def _static(sizes: Sequence[x.PrimExpr]) -> tuple[int, ...]:
    values = tuple(s.value for s in sizes if isinstance(s, x.IntImm))
    if len(values) != len(sizes):
        raise _NoFormError
    return values


def _operands(e: x.PrimExpr) -> tuple[x.PrimExpr, ...]:
    if isinstance(e, x.Select):
        return e.condition, e.true_value, e.false_value
    if isinstance(e, x.Cast):
        return (e.value,)
    if isinstance(e, x.Not):
        return (e.a,)
    if isinstance(e, x.Call):
        return e.args
    if isinstance(e, x.Binary):
        return e.a, e.b
    raise _NoFormError


_BINARY: dict[type, str] = {x.Add: "add", x.Sub: "subtract", x.Mul: "multiply",
           x.FloorDiv: "floor_divide", x.FloorMod: "floor_mod", x.Min: "minimum",
           x.Max: "maximum", x.And: "logical_and", x.Or: "logical_or", x.EQ: "equal",
           x.NE: "not_equal", x.LT: "less", x.LE: "less_equal", x.GT: "greater",
           x.GE: "greater_equal"}
_CHOICES = ("if_then_else", "rarely")
_RENAMED = {"pow": "power", "fmod": "trunc_mod", "shift_left": "left_shift",
            "shift_right": "right_shift"}


def _applied(e: x.PrimExpr, parts: Sequence[Grid]) -> Grid:
    if isinstance(e, x.Select):
        condition, yes, no = parts
        return _chosen(condition, yes, no, e.dtype)
    if isinstance(e, x.Cast):
        return _cast(parts[0], e)
    if isinstance(e, x.Not):
        return unary("logical_not", np.logical_not, parts[0], e.dtype)
    if isinstance(e, x.Call):
        return _intrinsic(e, parts)
    if isinstance(e, x.Div):
        name = "divide" if e.dtype.is_float else "trunc_divide"
        return binary(name, parts, e.a.dtype)
    name = _BINARY.get(type(e), "")
    if not name:
        raise _NoFormError
    return binary(name, parts, e.a.dtype)  # type: ignore[attr-defined]


def _cast(value: Grid, e: x.Cast) -> Grid:
    if isinstance(value, np.ndarray):
        return value.astype(e.dtype.numpy)
    return get_op("cast")(value, dtype=e.dtype)


def _chosen(condition: Grid, yes: Grid, no: Grid, dtype: Any) -> Grid:
    if all(isinstance(part, np.ndarray) for part in (condition, yes, no)):
        return np.where(condition, yes, no)  # pyrefly: ignore
    flag = x.bool_
    return get_op("where")(as_expr(condition, flag), as_expr(yes, dtype), as_expr(no, dtype))


def _intrinsic(e: x.Call, parts: Sequence[Grid]) -> Grid:
    if e.name in _CHOICES:
        condition, yes, no = parts
        return _chosen(condition, yes, no, e.dtype)
    if e.name == "likely":
        return parts[0]
    if e.name in ("fma", "multiply_add"):
        return binary("add", [binary("multiply", parts[:2], e.dtype), parts[2]], e.dtype)
    if e.name == "times_power_of_two":
        power = unary("floor", np.floor, parts[1], e.dtype)
        two = np.asarray(2, e.dtype.numpy)
        return binary("multiply", [parts[0], binary("power", [two, power], e.dtype)], e.dtype)
    if e.name == "reinterpret":
        return _reinterpreted(e, parts[0])
    name = _RENAMED.get(e.name, e.name)
    if name not in OPS or e.name not in INTRINSICS:
        raise _NoFormError
    run = INTRINSICS.get(e.name).evaluate
    if all(isinstance(part, np.ndarray) for part in parts) and run is not None:
        return np.asarray(run(*parts))
    given = [as_expr(p, a.dtype) for p, a in zip(parts, e.args, strict=True)]
    return get_op(name)(*given)


def _reinterpreted(e: x.Call, value: Grid) -> Grid:
    if isinstance(value, np.ndarray):
        return value.view(e.dtype.numpy)
    return get_op("reinterpret")(value, dtype=e.dtype)


def _simple_reduction(e: x.Reduce) -> str | None:
    """The operator of a reduction whose combiner is one node."""
    if len(e.source) != 1:
        return None
    root, dtype = e.combiner.result[0], e.dtype
    operands = {e.combiner.lhs[0], e.combiner.rhs[0]}
    if not isinstance(root, x.Binary) or {root.a, root.b} != operands or dtype.is_bool != \
            isinstance(root, (x.And, x.Or)):
        return None
    names: dict[type, str] = {x.Add: "sum", x.Mul: "prod", x.Max: "max", x.Min: "min", x.And: "all",
             x.Or: "any"}
    return names.get(type(root))
