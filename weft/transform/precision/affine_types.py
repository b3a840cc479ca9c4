"""The affine types of a quantised program: which values are stored as integers, and how."""

from __future__ import annotations

from weft.ir import Call, Expr, Function, IRModule, Tuple, TupleGetItem
from weft.ir.affine import AffineType, TensorAffineType, TupleAffineType
from weft.ir.analysis import known_type
from weft.ir.types import TensorType
from weft.ir.visitor import post_order
from weft.transform.analysis.graph import enters, op_name
from weft.transform.precision.fake_quantization_to_integer import stored_values


def affine_types(program: IRModule | Function) -> dict[Expr, AffineType]:
    """The affine types of the expressions of a typed program with ``qnn.quantize`` and dequantize.

    Integers have the type by which they are quantised or dequantised; real values have that of the
    integers from which operators can compute them, as ``FakeQuantizationToInteger`` does. Other
    expressions have none. ``as_text(program, affine=affine_types(program))`` shows them.
    """
    functions = program.functions.values() if isinstance(program, IRModule) else (program,)
    found: dict[Expr, AffineType] = {}
    for function in functions:
        found |= _of_function(function)
    return found


def _of_function(function: Function) -> dict[Expr, AffineType]:
    found: dict[Expr, AffineType] = {
        node: stored.type for node, stored in stored_values(function).items()}
    for node in post_order(function, enter=enters):
        if isinstance(node, Tuple) and any(field in found for field in node.fields):
            found[node] = TupleAffineType(tuple(map(found.get, node.fields)))
        elif isinstance(node, TupleGetItem) and node not in found:
            whole = found.get(node.tuple_value)
            part = whole.types[node.index] if isinstance(whole, TupleAffineType) else None
            if part is not None:
                found[node] = part
        elif isinstance(node, Call) and op_name(node) == "qnn.quantize":
            found[node] = _declared(node, node)
        elif isinstance(node, Call) and op_name(node) == "qnn.dequantize":
            found.setdefault(node.args[0], _declared(node, node.args[0]))
    return found


def _declared(call: Call, integers: Expr) -> TensorAffineType:
    """What a call that quantises or dequantises says of ``integers``."""
    kind = known_type(integers)
    assert isinstance(kind, TensorType)
    return TensorAffineType(call.args[1], call.args[2], kind.dtype,
                            call.attrs.axis)  # type: ignore[attr-defined]
