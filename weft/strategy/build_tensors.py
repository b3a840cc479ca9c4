"""Tensor expressions of a primitive function: a placeholder per parameter, a stage per call."""

from __future__ import annotations

from typing import Any, TypeAlias

from weft import te
from weft.ir import Op, OpPattern, TensorType, TupleType, Type, post_order, typical_size
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from weft.strategy.contract import check_compute
from weft.strategy.implementation import Implementation
from weft.strategy.size_vars import SizeVars, symbols_of
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, LoweringError, OperatorError
from weft.support.user_code import location_in_traceback

Value: TypeAlias = "te.Tensor | tuple[te.Tensor, ...]"


@dataclass(frozen=True, slots=True)
class TensorGraph:
    """``inputs`` in parameter order with tuples flattened; ``outputs`` in the order of the kernel's
    arguments; ``anchor`` is the result of the anchor call, or the first output; ``sizes`` are the
    variables of the symbolic sizes, by symbol.
    """

    inputs: tuple[te.Tensor, ...]
    outputs: tuple[te.Tensor, ...]
    anchor: te.Tensor
    sizes: SizeVars


def anchor_of(function: Function) -> Call | None:
    """The call whose implementation schedules the kernel, or ``None`` if the body has no call.

    It is the call with the highest operator pattern, the first of equals. Casts rank lowest: they
    convert at the edges of kernels that compute in another dtype than they store.
    """
    best: Call | None = None
    for expr in post_order(function.body):
        if isinstance(expr, Call) and (best is None or _rank(expr) > _rank(best)):
            best = expr
    return best


def _rank(call: Call) -> int:
    """The operator pattern; casts rank below all patterns, function calls as opaque."""
    if not isinstance(call.op, Op):
        return int(OpPattern.OPAQUE)
    return -1 if call.op.name == "cast" else int(call.op.pattern)


def build_tensors(
    function: Function, anchor: Call | None, implementation: Implementation | None
) -> TensorGraph:
    """The computes of ``function``, with that of ``implementation`` for the anchor if it has one.

    Raises ``LoweringError`` for expressions that a kernel cannot contain.
    """
    values: dict[int, Value] = {}
    inputs: list[te.Tensor] = []
    sizes = SizeVars(symbols_of(function))
    for index, param in enumerate(function.params):
        value = _placeholder(param.checked_type or param.annotation, f"p{index}", sizes)
        values[id(param)] = value
        inputs.extend(value if isinstance(value, tuple) else (value,))
    for expr in post_order(function.body):
        if id(expr) in values or isinstance(expr, Op):
            continue
        compute = implementation.compute if implementation and expr is anchor else None
        values[id(expr)] = _value_of(expr, values, compute, sizes)
    result = values[id(function.body)]
    outputs = result if isinstance(result, tuple) else (result,)
    anchor_value = values[id(anchor)] if anchor is not None else outputs
    anchor_tensor = anchor_value[0] if isinstance(anchor_value, tuple) else anchor_value
    return TensorGraph(tuple(inputs), _distinct_computes(outputs, inputs), anchor_tensor, sizes)


def _placeholder(type_: Type | None, name: str, sizes: SizeVars) -> Value:
    if isinstance(type_, TensorType):
        shape = tuple(map(sizes.size, type_.shape))
        return te.placeholder(shape, dtype=type_.dtype, name=name)
    if isinstance(type_, TupleType):
        fields = []
        for index, field in enumerate(type_.fields):
            value = _placeholder(field, f"{name}_{index}", sizes)
            if isinstance(value, tuple):
                raise LoweringError("a kernel parameter is a nested tuple", got=str(type_))
            fields.append(value)
        return tuple(fields)
    raise LoweringError("a kernel parameter is neither a tensor nor a tuple of tensors",
                        got=str(type_))


def _value_of(expr: Expr, values: dict[int, Value], compute: Any, sizes: SizeVars) -> Value:
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        function = compute or expr.op.compute
        if function is None:
            raise LoweringError(f"{expr.op.name} does not define a compute", where=expr.span)
        try:
            result = function(*(values[id(arg)] for arg in expr.args), sizes.attrs(expr.attrs))
        except (LoweringError, OperatorError) as error:
            location = location_in_traceback(error.__traceback__)
            raise error.at(location, f"in the compute of {expr.op.name}") from error
        check_compute(expr, expr.op, function, result)
        return result
    if isinstance(expr, Tuple):
        return tuple(_single(values[id(field)]) for field in expr.fields)
    if isinstance(expr, TupleGetItem):
        fields = values[id(expr.tuple_value)]
        return fields[expr.index] if isinstance(fields, tuple) else fields
    if isinstance(expr, Constant):
        return _scalar(expr)
    if isinstance(expr, Var):
        raise LoweringError(f"free variable %{expr.name} in a kernel", where=expr.span)
    raise LoweringError(f"{type(expr).__name__} is not allowed in a kernel", where=expr.span)


def _single(value: Value) -> te.Tensor:
    if isinstance(value, tuple):
        raise LoweringError("a kernel result is a nested tuple")
    return value


def _scalar(constant: Constant) -> te.Tensor:
    if constant.data.size != 1:
        raise LoweringError(
            "a kernel contains a constant with more than one element",
            got=str(constant.tensor_type),
        )
    number = constant.data.reshape(()).item()
    dtype = constant.tensor_type.dtype
    return te.compute(
        constant.data.shape, lambda *_: te.const(number, dtype), name="constant"
    )


def _distinct_computes(
    outputs: tuple[te.Tensor, ...], inputs: list[te.Tensor]
) -> tuple[te.Tensor, ...]:
    """The outputs, with a copy in place of each that is an input or occurs a second time."""
    seen = {id(t) for t in inputs}
    result = []
    for tensor in outputs:
        own = _copy(tensor) if id(tensor) in seen else tensor
        seen.add(id(own))
        result.append(own)
    return tuple(result)


def _copy(tensor: te.Tensor) -> te.Tensor:
    return te.compute(tensor.shape, lambda *i: tensor[i], name="copy")


def tensors_of_call(call: Call) -> tuple[te.Tensor, ...]:
    """What the operator computes; symbolic dimensions have their typical sizes.

    Raises ``InternalError`` for a call of anything but an operator with a compute.
    """
    if not isinstance(call.op, Op) or call.op.compute is None:
        raise InternalError("only operators with a compute have tensor expressions")
    inputs = [te.placeholder(_typical_sizes(arg.checked_type), dtype) for arg in call.args
              if (dtype := getattr(arg.checked_type, "dtype", None)) is not None]
    result = call.op.compute(*inputs, call.attrs)
    return result if isinstance(result, tuple) else (result,)


def _typical_sizes(type_: object) -> list[int]:
    shape = type_.shape if isinstance(type_, TensorType) else ()
    return list(map(typical_size, shape))
