"""Programs of quantised operators: lowered, compiled, and next to ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import check_example
from weft import op
from weft.ir import Call, Function, IRModule, const, infer_type, var
from weft.ir.op import OPS, Op
from weft.ir.visitor import post_order
from weft.support.errors import TypeInferenceError
from weft.transform import QnnCanonicalize, evaluate


def test_example() -> None:
    check_example(QnnCanonicalize())


RNG = np.random.default_rng(0)
S, Z = const(0.05, "float32"), const(3, "int32")


def names_in(function: Function) -> list[str]:
    return [e.op.name for e in post_order(function.body)
            if isinstance(e, Call) and isinstance(e.op, Op)]


def bytes_of(shape: tuple[int, ...], dtype: str = "int8") -> np.ndarray:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return RNG.integers(low, high + 1, shape).astype(dtype)


def small_network() -> Function:
    """Convolution, sum, pool, dense: as a converter of quantised models would write it."""
    x = var("x", (1, 3, 8, 8), "uint8")
    q = op.qnn
    kernel = const(bytes_of((4, 3, 3, 3)))
    scales = const(np.float32([0.01, 0.02, 0.005, 0.03]))
    zero = const(0, "int32")
    y = q.conv2d(x, kernel, Z, zero, S, scales, padding=(1, 1))
    y = q.requantize(y, op.multiply(scales, S), zero, S, Z, axis=1)
    y = q.add(y, q.sigmoid(y, S, Z, const(1 / 256, "float32"), const(-128, "int32")),
              S, Z, const(1 / 256, "float32"), const(-128, "int32"), S, zero)
    y = q.avg_pool2d(y, S, zero, S, Z, pool_size=(4, 4), strides=(4, 4))
    y = op.reshape(y, newshape=(1, 16))
    y = q.dense(y, const(bytes_of((5, 16))), Z, const(np.int32([1, 2, 0, -1, 4])), S, S)
    y = q.requantize(y, op.multiply(S, S), zero, S, Z)
    return Function((x,), q.dequantize(y, S, Z))


def test_nothing_quantised_is_left_and_the_values_stay() -> None:
    module = infer_type(IRModule.from_expr(small_network()))
    lowered = QnnCanonicalize()(module)
    assert not [name for name in names_in(lowered["main"]) if name.startswith("qnn.")]
    x = bytes_of((1, 3, 8, 8), "uint8")
    before, after = evaluate(module, [x]), evaluate(lowered, [x])
    np.testing.assert_array_equal(before, after)
    np.testing.assert_allclose(weft.compile(module, build_jobs=1)(x), before, atol=0.05 + 1e-6)


def _two_bytes(build) -> tuple[Function, list[np.ndarray]]:
    x, y = var("x", (64, 100), "int8"), var("y", (64, 100), "int8")
    return Function((x, y), build(x, y)), [bytes_of((64, 100)), bytes_of((64, 100))]


T, SMALL = const(-7, "int32"), const(0.003, "float32")


@pytest.mark.parametrize("build", [
    lambda x, _: op.qnn.requantize(op.multiply(op.cast(x, dtype="int32"), const(99, "int32")),
                                   SMALL, Z, S, T),
    lambda x, _: op.qnn.requantize(x, SMALL, Z, S, T, rounding="upward"),
    lambda x, y: op.qnn.mul(x, y, S, Z, S, T, SMALL, Z),
    lambda x, y: op.qnn.add(x, y, S, Z, SMALL, T, S, T),
    lambda x, y: op.qnn.subtract(x, y, SMALL, Z, S, T, SMALL, T, rounding="away"),
    lambda x, _: op.qnn.avg_pool2d(op.reshape(x, newshape=(4, 16, 10, 10)), SMALL, Z, S, T,
                                   pool_size=(3, 3), padding=(1, 1)),
    lambda x, _: op.qnn.hardswish(x, S, Z, SMALL, T),
    lambda x, _: op.qnn.leaky_relu(x, S, Z, SMALL, T, alpha=0.3),
    lambda x, y: op.qnn.concatenate([x, y], [S, SMALL], [Z, T], SMALL, Z),
    lambda x, _: op.qnn.quantize(op.cast(x, dtype="float32"), SMALL, Z),
])
def test_constant_scales_give_the_same_bits_as_others(build) -> None:
    """No pass merges factors whose products would round otherwise."""
    function, arrays = _two_bytes(build)
    module = infer_type(IRModule.from_expr(function))
    np.testing.assert_array_equal(weft.compile(module, build_jobs=1)(*arrays),
                                  evaluate(module, arrays))


def test_products_of_bytes_stay_products_of_bytes() -> None:
    """For the instructions that multiply bytes; zero points of constants become constants."""
    x = var("x", (2, 8), "uint8")
    call = op.qnn.dense(x, const(bytes_of((4, 8))), Z, const(0, "int32"), S, S)
    lowered = QnnCanonicalize()(infer_type(IRModule.from_expr(Function((x,), call))))["main"]
    (product,) = (e for e in post_order(lowered.body)
                  if isinstance(e, Call) and str(e.op) == "nn.dense")
    assert [str(a.checked_type.dtype) for a in product.args] == ["uint8", "int8"]
    assert str(product.checked_type.dtype) == "int32"


def test_rows_of_any_number() -> None:
    """Symbolic sizes go through the relations."""
    module = weft.parse("""
        def @main(%x: Tensor[(n, 5), int8], %w: Tensor[(4, 5), int8]) {
          qnn.requantize(qnn.dense(%x, %w, 3, -2, 0.5f, 0.5f), 0.25f, 0, 0.5f, 1)
        }""")
    assert str(module["main"].body.checked_type) == "Tensor[(n, 4), int8]"


@pytest.mark.parametrize(("text", "message"), [
    ("qnn.quantize(%x, 0.5f, 0.0f)", "a zero point has the wrong dtype"),
    ("qnn.quantize(%q, 0.5f, 0)", "expected real numbers"),
    ("qnn.dequantize(%x, 0.5f, 0)", "expected a quantized tensor"),
    ("qnn.dequantize(%q, const([1, 2], (2,), float32), 0)", "the length does not fit the axis"),
    ("qnn.abs(%q, const([1, 2, 3], (3,), float32), 0, 0.5f, 0)", "one number for the whole"),
    ("qnn.quantize(%x, 0.5f, 0, axis=3)", ""),
    ('qnn.quantize(%x, 0.5f, 0, rounding="down")', "rounding"),
    ("qnn.dense(%q, %q, 0, 0, 0.5f, 0.5f, units=7)", "units"),
])
def test_mistakes_are_named(text: str, message: str) -> None:
    program = f"def @main(%x: Tensor[(2, 3), float32], %q: Tensor[(2, 3), int8]) {{ {text} }}"
    if not message:
        assert weft.parse(program)  # one number fits any axis
        return
    with pytest.raises((TypeInferenceError, weft.WeftError)) as caught:
        weft.parse(program)
    assert message in str(caught.value)


def test_every_operator_of_relay_is_there() -> None:
    relay = """abs add avg_pool2d batch_matmul concatenate conv2d conv2d_transpose dense dequantize
    erf exp hardswish leaky_relu log mul quantize requantize rsqrt sigmoid simulated_dequantize
    simulated_quantize softmax sqrt subtract tanh"""
    assert {f"qnn.{name}" for name in relay.split()} == {n for n in OPS if n.startswith("qnn.")}


def onnx_result(op_type: str, inputs: dict[str, np.ndarray], **attributes: object) -> np.ndarray:
    """What ONNX Runtime gives; ``yz`` or ``z`` is the zero point of what is stored."""
    onnx = pytest.importorskip("onnx")
    from tests.onnxruntime_peer import run_onnxruntime

    helper = onnx.helper
    values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in inputs.items()]
    node = helper.make_node(op_type, list(inputs), ["y"], **attributes)
    dtype = inputs["yz" if "yz" in inputs else "z"].dtype
    kind = helper.np_dtype_to_tensor_dtype(np.dtype("float32") if "Deq" in op_type else dtype)
    result = helper.make_tensor_value_info("y", kind, None)
    model = helper.make_model(helper.make_graph([node], "g", values, [result]),
                              opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return run_onnxruntime(model, inputs)[0]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantize_and_dequantize_are_those_of_onnx(dtype: str) -> None:
    x = RNG.uniform(-9, 9, (4, 64)).astype(np.float32)
    x[0] = np.arange(64, dtype=np.float32) * np.float32(0.025)  # halves of steps among them
    scale = np.float32([0.05, 0.02, 0.1, 0.3])
    zero = np.array([3, 0, 7, 100]).astype(dtype)
    wanted = onnx_result("QuantizeLinear", {"x": x, "s": scale, "z": zero}, axis=0)
    call = op.qnn.quantize(x, scale, zero.astype(np.int32), axis=0, out_dtype=dtype)
    found = weft.compile(Function((), call))()
    np.testing.assert_array_equal(found, wanted)
    back = weft.compile(Function((), op.qnn.dequantize(found, scale, zero.astype(np.int32),
                                                       axis=0)))()
    np.testing.assert_array_equal(
        back, onnx_result("DequantizeLinear", {"x": wanted, "s": scale, "z": zero}, axis=0))


def test_a_product_is_that_of_onnx() -> None:
    a, b = bytes_of((6, 16), "uint8"), bytes_of((16, 5))
    scales = [np.array(s, np.float32) for s in (0.02, 0.03, 0.4)]
    zeros = np.array(7, np.uint8), np.array(-3, np.int8), np.array(100, np.uint8)
    wanted = onnx_result("QLinearMatMul", {
        "a": a, "as": scales[0], "az": zeros[0], "b": b, "bs": scales[1], "bz": zeros[1],
        "ys": scales[2], "yz": zeros[2]})
    product = op.qnn.dense(a, np.ascontiguousarray(b.T), np.int32(7), np.int32(-3), *scales[:2])
    call = op.qnn.requantize(product, scales[0] * scales[1], np.int32(0), scales[2], np.int32(100),
                             out_dtype="uint8")
    np.testing.assert_array_equal(weft.compile(Function((), call))(), wanted)
