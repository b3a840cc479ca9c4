"""Affine types: what integers of a quantised program stand for, and how they are shown."""

from __future__ import annotations

import numpy as np

from weft import ir, op
from weft.ir import Call, Expr, Function, IRModule, Tuple, TupleGetItem, as_text, const, var
from weft.ir.affine import AffineType, TensorAffineType, TupleAffineType
from weft.ir.visitor import post_order
from weft.transform import affine_types

X = var("x", (2, 3), "int8")
SCALE, ZERO = const(0.5, "float32"), const(1, "int32")


def _real() -> Call:
    return op.qnn.dequantize(X, SCALE, ZERO)


def _types(body: Expr) -> tuple[IRModule, dict[str, AffineType]]:
    """The typed program, and the affine types of calls by the names of operators."""
    module = ir.infer_type(IRModule.from_expr(Function((X,), body)))
    found = affine_types(module)
    named = {node.op.name: found[node] for node in post_order(module["main"].body)
             if isinstance(node, Call) and isinstance(node.op, ir.Op) and node in found}
    (parameter,) = module["main"].params
    return module, {"x": found[parameter], **named}


def test_values_between_dequantize_and_quantize_have_affine_types() -> None:
    weight = op.qnn.dequantize(
        const(np.ones((4, 3), np.int8)), const(np.array([1, 2, 3, 4], np.float32)),
        const(0, "int32"), axis=0)
    y = op.tanh(op.nn.dense(op.reshape(_real(), newshape=(2, 3)), weight))
    module, types = _types(op.qnn.quantize(y, const(0.25, "float32"), const(2, "int32"),
                                           out_dtype="uint8"))
    assert str(types["x"]) == str(types["reshape"]) == "0.5 * (int8 - 1)"
    assert str(types["qnn.quantize"]) == "0.25 * (uint8 - 2)"
    product = types["nn.dense"]
    assert isinstance(product, TensorAffineType)
    assert (product.dtype.name, product.axis, product.is_uniform) == ("int32", -1, False)
    assert "tanh" not in types  # needs the scale of its result
    text = as_text(module, affine=affine_types(module))
    assert "/* 0.5 * (int8 - 1) */" in text
    assert ir.structural_equal(ir.infer_type(ir.parse(text)), module)
    assert "0.5 *" not in as_text(module)


def test_fields_of_tuples_have_types_of_their_own() -> None:
    other = op.qnn.dequantize(X, const(2.0, "float32"), ZERO)
    pair = Tuple((op.nn.relu(_real()), other, op.tanh(other)))
    module, _ = _types(Tuple((TupleGetItem(pair, 1), pair)))
    found = affine_types(module)
    body = module["main"].body
    assert isinstance(body, Tuple)
    first, whole = body.fields
    assert str(found[first]) == "2 * (int8 - 1)"
    kind = found[whole]
    assert isinstance(kind, TupleAffineType)
    assert str(kind) == "(0.5 * (int8 - 1), 2 * (int8 - 1), real)"


def test_equal_parameters_make_equal_types() -> None:
    kind = TensorAffineType(SCALE, ZERO, ir.DType.of("int8"))
    assert kind.is_same(TensorAffineType(const(0.5, "float32"), const(1, "int32"), kind.dtype, 0))
    for other in (TensorAffineType(const(0.25, "float32"), ZERO, kind.dtype),
                  TensorAffineType(SCALE, const(3, "int32"), kind.dtype),
                  TensorAffineType(SCALE, ZERO, ir.DType.of("uint8"))):
        assert not kind.is_same(other)
