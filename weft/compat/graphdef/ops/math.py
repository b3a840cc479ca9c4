"""Arithmetic, comparisons and functions of single elements; matrix products."""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.frontend.common import arrays
from weft.frontend.common.typed import tensor_type
from weft.ir import DType, Expr, Op

UNARY = {
    "Abs": op.abs, "Acos": op.acos, "Acosh": op.acosh, "Asin": op.asin, "Asinh": op.asinh,
    "Atan": op.atan, "Atanh": op.atanh, "Ceil": op.ceil, "Cos": op.cos, "Cosh": op.cosh,
    "Digamma": op.special.digamma, "Erf": op.erf, "Erfc": op.special.erfc,
    "Erfinv": op.special.erfinv, "Exp": op.exp, "Expm1": op.expm1, "Floor": op.floor,
    "Invert": op.bitwise_not, "IsFinite": op.isfinite, "IsInf": op.isinf, "IsNan": op.isnan,
    "Lgamma": op.special.lgamma, "Log": op.log, "Log1p": op.log1p, "LogicalNot": op.logical_not,
    "Ndtri": op.special.ndtri, "Neg": op.negative, "OnesLike": op.ones_like, "Relu": op.nn.relu,
    "Rint": op.round, "Round": op.round, "Rsqrt": op.rsqrt, "Sigmoid": op.sigmoid,
    "Sign": op.sign, "Sin": op.sin, "Sinh": op.sinh, "Sqrt": op.sqrt, "Tan": op.tan,
    "Tanh": op.tanh, "ZerosLike": op.zeros_like,
}
BINARY = {
    "Add": op.add, "AddV2": op.add, "BitwiseAnd": op.bitwise_and, "BitwiseOr": op.bitwise_or,
    "BitwiseXor": op.bitwise_xor, "Div": None, "DivNoNan": None, "FloorDiv": op.floor_divide,
    "FloorMod": op.floor_mod, "Greater": op.greater, "GreaterEqual": op.greater_equal,
    "LeftShift": op.left_shift, "Less": op.less, "LessEqual": op.less_equal,
    "LogicalAnd": op.logical_and, "LogicalOr": op.logical_or, "Maximum": op.maximum,
    "Minimum": op.minimum, "Mod": op.trunc_mod, "Mul": op.multiply, "Pow": op.power,
    "RealDiv": op.divide, "RightShift": op.right_shift, "Sub": op.subtract,
    "TruncateDiv": op.trunc_divide, "TruncateMod": op.trunc_mod,
}


def _check_operands(node: Node) -> None:
    """Raise ``InvalidModelError`` for operands of another type than attribute ``T`` says."""
    declared = node.proto.attrs.get("T")
    for index in range(len(node.inputs)):
        if isinstance(declared, DType) and node.type(index).dtype is not declared:
            raise node.fail(f"operand {index} does not have the type that attribute 'T' says",
                            expected=str(declared), got=str(node.type(index)))


def _unary(operator: Op) -> Callable[[Node], Expr]:
    def convert(node: Node) -> Expr:
        _check_operands(node)
        return node.call(operator, node.input(0))

    return convert


def _binary(operator: Op) -> Callable[[Node], Expr]:
    def convert(node: Node) -> Expr:
        _check_operands(node)
        return node.call(operator, node.input(0), node.input(1))

    return convert


for _name, _operator in UNARY.items():
    converts(_name, inputs=1, outputs=("y",))(_unary(_operator))
for _name, _two in BINARY.items():
    if _two is not None:
        converts(_name, inputs=2, outputs=("z",))(_binary(_two))


@converts("Equal", "NotEqual", inputs=2, attributes=("incompatible_shape_error",), outputs=("z",))
def compare(node: Node) -> Expr:
    operator = op.equal if node.op == "Equal" else op.not_equal
    return node.call(operator, node.input(0), node.input(1))


@converts("Div", inputs=2, outputs=("z",))
def divide(node: Node) -> Expr:
    """Quotients of integers are rounded towards zero, as in C."""
    operator = op.divide if node.type().dtype.is_float else op.trunc_divide
    return node.call(operator, node.input(0), node.input(1))


@converts("DivNoNan", "MulNoNan", "Xdivy", inputs=2, outputs=("z",))
def without_nan(node: Node) -> Expr:
    """Zero where the deciding operand is zero: the divisor, the second factor, the dividend."""
    x, y = node.input(0), node.input(1)
    result = node.call(op.multiply if node.op == "MulNoNan" else op.divide, x, y)
    zero = node.scalar_like(0, y)
    decides = x if node.op == "Xdivy" else y
    return node.call(op.where, node.call(op.equal, decides, zero), zero, result)


@converts("SquaredDifference", inputs=2, outputs=("z",))
def squared_difference(node: Node) -> Expr:
    difference = node.call(op.subtract, node.input(0), node.input(1))
    return node.call(op.multiply, difference, difference)


@converts("Square", inputs=1, outputs=("y",))
def square(node: Node) -> Expr:
    return node.call(op.multiply, node.input(0), node.input(0))


@converts("Reciprocal", "Inv", inputs=1, outputs=("y",))
def reciprocal(node: Node) -> Expr:
    return node.call(op.divide, node.scalar_like(1, node.input(0)), node.input(0))


@converts("AddN", outputs=("sum",))
def add_all(node: Node) -> Expr:
    return functools.reduce(lambda a, b: node.call(op.add, a, b), node.inputs[1:], node.input(0))


@converts("ClipByValue", inputs=3)
def clip_by_value(node: Node) -> Expr:
    low = node.call(op.maximum, node.input(0), node.input(1))
    return node.call(op.minimum, low, node.input(2))


@converts("Cast", inputs=1, attributes=("SrcT", "DstT", "Truncate"), outputs=("y",))
def cast(node: Node) -> Expr:
    return node.call(op.cast, node.input(0), dtype=node.dtype("DstT"))


@converts("Bitcast", inputs=1, attributes=("type",))
def bitcast(node: Node) -> Expr:
    return node.call(op.reinterpret, node.input(0), dtype=node.dtype("type"))


@converts("Select", "SelectV2", inputs=3)
def select(node: Node) -> Expr:
    """The condition of ``Select`` may be a vector that chooses rows."""
    condition = node.input(0)
    rank = node.rank(1)
    if node.op == "Select" and node.rank(0) == 1 and rank > 1:
        shape = (node.shape(0)[0], *(1,) * (rank - 1))
        condition = node.call(op.reshape, condition, newshape=shape)
    return node.call(op.where, condition, node.input(1), node.input(2))


@converts("MatMul", inputs=2, attributes=("transpose_a", "transpose_b", "grad_a", "grad_b"),
          outputs=("product",))
def matmul(node: Node) -> Expr:
    return node.call(op.nn.matmul, node.input(0), node.input(1),
                     transpose_a=node.attr("transpose_a", bool, default=False),
                     transpose_b=node.attr("transpose_b", bool, default=False))


@converts("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", inputs=2,
          attributes=("adj_x", "adj_y", "Ta", "Tb", "grad_x", "grad_y"))
def batch_matmul(node: Node) -> Expr:
    """Leading axes broadcast."""
    out = node.dtype("Tout") if node.op == "BatchMatMulV3" else None
    return node.call(op.nn.matmul, node.input(0), node.input(1),
                     transpose_a=node.attr("adj_x", bool, default=False),
                     transpose_b=node.attr("adj_y", bool, default=False), out_dtype=out)


@converts("Einsum", attributes=("equation",))
def einsum(node: Node) -> Expr:
    equation = node.attr("equation", str).replace(" ", "")
    return node.typed(op.einsum(node.inputs, equation=equation, span=node.span))


@converts("Cumsum", "Cumprod", inputs=2, attributes=("exclusive", "reverse"), outputs=("out",))
def scan(node: Node) -> Expr:
    operator = op.cumsum if node.op == "Cumsum" else op.cumprod
    return node.call(operator, node.input(0), axis=node.axis(node.integer(1, "the axis")),
                     exclusive=node.attr("exclusive", bool, default=False),
                     reverse=node.attr("reverse", bool, default=False))


@converts("LinSpace", inputs=3)
def linspace(node: Node) -> Expr:
    start, stop = node.array(0, "the start"), node.array(1, "the stop")
    count = node.integer(2, "the number of elements")
    values = arrays.linspace(start, stop, count)
    return node.constant(values.reshape(-1), node.type(0).dtype)


@converts("Range", inputs=3)
def arange(node: Node) -> Expr:
    start, limit, delta = (node.array(i, "a bound").item() for i in range(3))
    if delta == 0:
        raise node.fail("the step is zero")
    return node.constant(arrays.arange(start, limit, delta), tensor_type(node.input(0)).dtype)
