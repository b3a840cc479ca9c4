"""Type inference and constant folding of expressions while importers build them.

Converters need the ranks and shapes of their inputs, so each call is typed when it is built.
Inference sees variables instead of the arguments, so its cost does not grow with the model.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np

from weft.ir import (
    AnyDim,
    DType,
    Op,
    TensorType,
    TupleType,
    Type,
    has_symbols,
    infer_expr,
    is_static,
)
from weft.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, Var
from weft.ir.typing.node_rules import known_result
from weft.support.errors import (
    InternalError,
    InvalidModelError,
    TypeInferenceError,
    UnsupportedModelError,
)
from weft.transform.analysis.reference import evaluate_call
from weft.transform.passes.fold_constant import bytes_of

# Enough for shapes, axes and scalars, which converters read. A later pass folds weights.
FOLD_LIMIT_ELEMENTS = 4096
MAX_RESULT_BYTES = 2**36
_keeps_weights: ContextVar[bool] = ContextVar("keeps_weights", default=False)


@contextlib.contextmanager
def keeping_weights() -> Iterator[None]:
    """Fold no small weights in a block, so that they keep their names."""
    token = _keeps_weights.set(True)
    try:
        yield
    finally:
        _keeps_weights.reset(token)


def tensor_type(expr: Expr) -> TensorType:
    """The type of ``expr``; raises ``TypeInferenceError`` if it is not a tensor."""
    if not isinstance(expr.checked_type, TensorType):
        raise TypeInferenceError(
            "a tensor is expected here", where=expr.span, got=str(expr.checked_type)
        )
    return expr.checked_type


def dtype_in(x: Expr) -> DType:
    return tensor_type(x).dtype


def shape_in(x: Expr) -> tuple[Any, ...]:
    """The shape of a tensor: integers, and symbolic dimensions, which take arithmetic.

    A converter that needs a number (to compare sizes, to count) fails with ``TypeError`` for a
    symbolic one, which the importer reports. Raises ``UnsupportedModelError`` for unknown sizes.
    """
    shape = tensor_type(x).shape
    if any(isinstance(dim, AnyDim) for dim in shape):
        raise UnsupportedModelError("a data-dependent size", got=str(tensor_type(x)))
    return shape


def typed(expr: Call | TupleGetItem) -> Expr:
    """``expr`` with its inferred type, or a constant if its value is known and small.

    The arguments must be typed. Raises ``TypeInferenceError`` for an ill-typed call.
    """
    if isinstance(expr, TupleGetItem):
        return _typed_field(expr)
    call = inferred(expr)
    return _folded(call) if _is_small(call) else call


def inferred(expr: Call) -> Call:
    """``expr`` with its inferred type.

    The arguments must be typed. Raises ``TypeInferenceError`` for an ill-typed call.
    """
    call = expr.replace(args=tuple(_typed_argument(a) for a in expr.args))
    result = known_result(call)
    if result is None:
        result = infer_expr(call.replace(args=tuple(_stand_in(a) for a in call.args))).checked_type
    _check_size(result, call)
    return dataclasses.replace(call, checked_type=result)


def _check_size(type_: Type | None, call: Call) -> None:
    """Raise ``InvalidModelError`` for a huge result, for example of a damaged shape or padding."""
    if isinstance(type_, (TensorType, TupleType)) and is_static(type_):
        nbytes = bytes_of(type_)
        if nbytes > MAX_RESULT_BYTES:
            raise InvalidModelError(
                "the result of this node is larger than any memory",
                where=call.span,
                expected=f"at most {MAX_RESULT_BYTES} bytes",
                got=f"{type_}, {nbytes} bytes",
            )


def _typed_field(expr: TupleGetItem) -> Expr:
    if isinstance(expr.tuple_value, Tuple):
        return expr.tuple_value.fields[expr.index]
    outer = expr.tuple_value.checked_type
    if not isinstance(outer, TupleType):
        raise InternalError("field of a value that is not a tuple", where=expr.span)
    return expr.with_type(outer.fields[expr.index])


def _typed_argument(argument: Expr) -> Expr:
    if argument.checked_type is None and isinstance(argument, Tuple):
        types = tuple(f.checked_type for f in argument.fields)
        return argument.with_type(TupleType(types))  # type: ignore[arg-type]
    return argument


def _stand_in(argument: Expr) -> Expr:
    return Var("x", argument.checked_type, span=argument.span)


def _is_small(call: Call) -> bool:
    if not isinstance(call.op, Op) or call.op.reference is None or not call.args:
        return False
    if not all(_is_constant(a) for a in call.args) or not is_static(call.checked_type):  # type: ignore[arg-type]
        return False
    if has_symbols(call.attrs):
        return False
    if call.op.name == "qnn.dequantize" and _elements(call.checked_type) > 1:
        return False  # matmuls and convolutions read quantized weights
    if _keeps_weights.get() and any(map(_is_weight, call.args)):
        return False
    types = [a.checked_type for a in call.args] + [call.checked_type]
    return all(_elements(t) <= FOLD_LIMIT_ELEMENTS for t in types)


def _is_constant(argument: Expr) -> bool:
    if isinstance(argument, Tuple):
        return all(isinstance(f, Constant) for f in argument.fields)
    return isinstance(argument, Constant)


def _is_weight(argument: Expr) -> bool:
    """Whether an argument is a stored tensor of real numbers, not one."""
    return isinstance(argument, Constant) and argument.span is not None \
        and argument.span.tensor is not None and argument.data.size > 1 \
        and argument.data.dtype.kind not in "biu"


def _elements(type_: object) -> int:
    if isinstance(type_, TupleType):
        return sum(_elements(f) for f in type_.fields)
    return math.prod(type_.concrete_shape) if isinstance(type_, TensorType) else 0


def _folded(call: Call) -> Expr:
    value = evaluate_call(call, [_value_of(a) for a in call.args])
    return _constant(value, call)


def _constant(value: object, call: Call) -> Expr:
    if isinstance(value, tuple):
        fields = tuple(_constant(v, call) for v in value)
        return Tuple(fields, span=call.span, checked_type=call.checked_type)
    return Constant(np.asarray(value), span=call.span)


def _value_of(argument: Expr) -> object:
    if isinstance(argument, Tuple):
        return tuple(_value_of(f) for f in argument.fields)
    if not isinstance(argument, Constant):
        raise InternalError("cannot fold an expression that is not constant", where=argument.span)
    return argument.data
