"""Composed operators: types, computes and lowering follow from simpler operators.

``build(*arguments, attrs)`` gives the expression that a call is equal to. The pass
``qnn_canonicalize`` replaces the call by it, its type is the type of the call, and the computes of
its operators, applied in turn, are the compute.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft import te
from weft.ir import Attrs, Case, DType, NoAttrs, Op, OpPattern, define_op, infer_expr, post_order
from weft.ir.analysis import known_type
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from weft.ir.span import Span
from weft.ir.types import TensorType, TupleType, Type, is_complete
from weft.ir.typing.relation import Relation, RelationContext
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, LoweringError, TypeInferenceError

Build: TypeAlias = Callable[..., Expr]
Tensors: TypeAlias = "te.Tensor | tuple[te.Tensor, ...]"
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32")


@dataclass(frozen=True, slots=True)
class Real:
    """A floating-point argument."""

    def check(self, ctx: RelationContext, index: int) -> None:
        """Fail for another dtype."""
        for type_ in _tensors(ctx, index, many=False):
            if not type_.dtype.is_float:
                ctx.fail("expected real numbers", arg=index, expected="a float dtype",
                         got=type_.dtype)


@dataclass(frozen=True, slots=True)
class Quantized:
    """An argument of quantized integers, or with ``many`` a tuple of such."""

    dtypes: tuple[str, ...] = INTEGERS
    many: bool = False

    def check(self, ctx: RelationContext, index: int) -> None:
        """Fail for another dtype."""
        for type_ in _tensors(ctx, index, many=self.many):
            if type_.dtype.name not in self.dtypes:
                ctx.fail("expected a quantized tensor", arg=index,
                         expected=" or ".join(self.dtypes), got=type_.dtype)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A scale (float32) or a zero point (int32): one number, or one along an axis of ``of``.

    ``axis`` determines that axis from the attributes and the rank; without it there is one number.
    ``many``: a tuple with one per tensor of the first argument.
    """

    dtype: str
    of: int | None = None
    axis: Callable[[Any, int], int] | None = None
    many: bool = False

    def check(self, ctx: RelationContext, index: int) -> None:
        """Fail for another dtype, or for sizes that fit no axis."""
        if self.many and len(ctx.tensors(index) or ()) != len(ctx.tensors(0) or ()):
            ctx.fail("expected one per tensor", arg=index, expected=ctx.args[0],
                     got=ctx.args[index])
        for type_ in _tensors(ctx, index, many=self.many):
            if type_.dtype.name != self.dtype:
                what = "a scale" if self.dtype == "float32" else "a zero point"
                ctx.fail(f"{what} has the wrong dtype", arg=index, expected=self.dtype,
                         got=type_.dtype)
            if type_.shape in ((), (1,)):
                continue
            data = None if self.of is None else ctx.tensor(self.of)
            if data is None or self.axis is None or type_.ndim != 1:
                ctx.fail("expected one number for the whole tensor", arg=index,
                         expected="shape () or (1,)", got=type_.shape)
                return
            axis = self.axis(ctx.attrs, data.ndim)
            if not -data.ndim <= axis < data.ndim:
                ctx.fail("axis out of range", expected=f"an axis of {data}", got=axis)
            if type_.shape[0] != data.shape[axis]:
                ctx.fail("the length does not fit the axis", arg=index,
                         expected=f"({data.shape[axis]},), as axis {axis} of the data, or one",
                         got=type_.shape)


    def check_values(self, call: Call, index: int, stored: DType) -> None:
        """Raise ``InvalidModelError`` for constants that no tensor of ``stored`` can have."""
        argument = call.args[index]
        for part in argument.fields if isinstance(argument, Tuple) else (argument,):
            if isinstance(part, Constant):
                where = part.span or call.span
                if self.dtype == "float32":
                    _check_scales(part.data, call, where)
                else:
                    _check_zeros(part.data, call, where, stored)


def _check_scales(values: np.ndarray, call: Call, where: Span | None) -> None:
    wrong = values[~(np.isfinite(values) & (values > 0))]
    if wrong.size:
        raise InvalidModelError(
            f"{call.op}: a scale is not a positive number", where=where,
            expected="finite scales above 0", got=wrong[0],
            help="a tensor of zeros has any scale, such as 1; look for constant tensors in the "
                 "calibration data of the tool that wrote the scale")


def _check_zeros(values: np.ndarray, call: Call, where: Span | None, stored: DType) -> None:
    ends = np.iinfo(stored.numpy)
    wrong = values[(values < ends.min) | (values > ends.max)]
    if wrong.size:
        raise InvalidModelError(
            f"{call.op}: a zero point is out of the range of {stored}", where=where,
            expected=f"{ends.min} to {ends.max}", got=wrong[0],
            help="the zero point is the integer that stands for 0.0, so the tensor must hold it")


Role: TypeAlias = "Real | Quantized | Parameter"
_ROLES: dict[str, Sequence[tuple[str, Role]]] = {}


def check_parameters(call: Call) -> None:
    """Raise ``InvalidModelError`` for constant scales and zero points that no tensor can have."""
    for index, (name, role) in enumerate(_ROLES.get(str(call.op), ())):
        if isinstance(role, Parameter):
            role.check_values(call, index, _stored_dtype(call, name, role.of or 0))


def _stored_dtype(call: Call, name: str, of: int) -> DType:
    """The dtype of the integers that a scale or zero point is about."""
    data, out_dtype = call.args[of], getattr(call.attrs, "out_dtype", None)
    if isinstance(data, Tuple):
        data = data.fields[0]
    type_ = known_type(data)
    if isinstance(type_, TensorType) and type_.dtype.is_int and not name.startswith("output"):
        return type_.dtype
    result = known_type(call)
    known = result.dtype if isinstance(result, TensorType) else DType.of("int32")
    return out_dtype or known


def scale(
    of: int | None = None, axis: Callable[[Any, int], int] | None = None, *, many: bool = False
) -> Parameter:
    """A scale."""
    return Parameter("float32", of, axis, many)


def zero(
    of: int | None = None, axis: Callable[[Any, int], int] | None = None, *, many: bool = False
) -> Parameter:
    """A zero point."""
    return Parameter("int32", of, axis, many)


def define_composed(
    name: str,
    build: Build,
    reference: Callable[..., Any],
    *cases: Case,
    roles: Sequence[tuple[str, Role]],
    doc: str,
    attrs: type[Attrs] = NoAttrs,
    pattern: OpPattern = OpPattern.OPAQUE,
) -> Op:
    """The operator ``name``; ``roles`` names its arguments and restricts each of them."""

    def compute(*arguments: Any) -> Tensors:
        *tensors, attributes = arguments
        return _compose(build, tensors, attributes)

    compute.__doc__ = doc
    _ROLES[name] = roles
    relation = _relation(build, tuple(role for _, role in roles))
    op = define_op(name, attrs=attrs, relation=relation, pattern=pattern, level=11,
                   inputs=tuple(n for n, _ in roles))(compute)
    op.decomposition(lambda call: build(*call.args, call.attrs))
    op.spec(reference, *cases)
    return op


def _relation(build: Build, roles: tuple[Role, ...]) -> Relation:
    def relate(ctx: RelationContext) -> bool:
        """The type of the composed expression, after checking scales and zero points."""
        if not all(map(is_complete, ctx.args)):
            return False
        for index, role in enumerate(roles):
            role.check(ctx, index)
        try:
            meaning = infer_expr(build(*map(_variable, ctx.args), ctx.attrs))
        except TypeInferenceError as error:
            # The user did not write the operators of the composition, so their error is reported as
            # one of the composed operator.
            first = error.errors[0] if error.errors else error
            ctx.fail(first.what, expected=first.expected, got=first.got, help=first.help)
            raise
        if meaning.checked_type is not None:
            ctx.output(meaning.checked_type)
        return True

    return relate


def _tensors(ctx: RelationContext, index: int, *, many: bool) -> tuple[TensorType, ...]:
    """The tensor, or the tensors of the tuple, at ``index``."""
    if many:
        return ctx.tensors(index) or ()
    found = ctx.tensor(index)
    return () if found is None else (found,)


def _variable(type_: Type) -> Expr:
    if isinstance(type_, TupleType):
        fields = tuple(map(_variable, type_.fields))
        return Tuple(fields, checked_type=type_)
    return Var("x", type_)


def _compose(build: Build, tensors: Sequence[Tensors], attrs: Attrs) -> Tensors:
    arguments = [_variable(_type_of(t)) for t in tensors]
    values: dict[Expr, Tensors] = {}
    for argument, tensor in zip(arguments, tensors, strict=True):
        values[argument] = tensor
        if isinstance(argument, Tuple) and isinstance(tensor, tuple):
            values.update(zip(argument.fields, tensor, strict=True))
    meaning = infer_expr(build(*arguments, attrs))
    for node in post_order(meaning):
        if node not in values and not isinstance(node, Op):
            values[node] = _value(node, values)
    return values[meaning]


def _value(node: Expr, values: dict[Expr, Tensors]) -> Tensors:
    if isinstance(node, Call) and isinstance(node.op, Op) and node.op.compute is not None:
        result: Tensors = node.op.compute(*(values[a] for a in node.args), node.attrs)
        return result
    if isinstance(node, Tuple):
        return tuple(t for f in node.fields for t in [values[f]] if isinstance(t, te.Tensor))
    if isinstance(node, TupleGetItem):
        fields = values[node.tuple_value]
        return fields[node.index] if isinstance(fields, tuple) else fields
    if isinstance(node, Constant) and node.data.size == 1:
        number, dtype = node.data.reshape(()).item(), DType.of(node.data.dtype)
        return te.compute(node.data.shape, lambda *_: te.const(number, dtype), name="constant")
    raise LoweringError(f"missing compute of {type(node).__name__}", where=node.span)


def _type_of(value: Tensors) -> Type:
    if isinstance(value, tuple):
        return TupleType(tuple(map(_type_of, value)))
    if value.static_shape is None:
        raise LoweringError(f"{value.name} has a symbolic size", expected="static sizes")
    return TensorType(value.static_shape, value.dtype)
