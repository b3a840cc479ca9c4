"""Operators with a layout hook mean the same in the layouts that the hook asks for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.op.harness import output_types
from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import Call, Tuple, Var, var
from weft.ir.op import Op
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.infer import infer_expr
from weft.op.layout_inference import LayoutResult, keeps_order
from weft.topi.layout import Layout, transform_array

P = Layout.parse
IMAGE = (2, 8, 5, 6)
PIXEL = (2, 8, 1, 1)
C4, C8, C2 = "NCHW4c", "NCHW8c", "NCHW2c"

# operator, attributes, original shapes, layouts in which they arrive, layouts of the results
CARRIED: list[Any] = [
    (op.nn.relu, {}, [IMAGE], [C4], [C4]),
    (op.clip, {"a_min": 0.0, "a_max": 0.5}, [IMAGE], [C4], [C4]),
    (op.cast, {"dtype": "float64"}, [IMAGE], [C4], [C4]),
    (op.nn.leaky_relu, {"alpha": 0.3}, [IMAGE], [C4], [C4]),
    (op.add, {}, [IMAGE, IMAGE], [C4, C4], [C4]),
    (op.add, {}, [IMAGE, IMAGE], [C4, None], [C4]),
    (op.add, {}, [IMAGE, IMAGE], [None, C4], [C4]),
    (op.add, {}, [IMAGE, IMAGE], [C2, C4], [C4]),
    (op.add, {}, [IMAGE, (8, 1, 1)], [C4, None], [C4]),
    (op.multiply, {}, [IMAGE, (1, 8, 1, 1)], [C4, None], [C4]),
    (op.multiply, {}, [IMAGE, ()], [C4, None], [C4]),
    (op.multiply, {}, [IMAGE, (1, 1)], [C4, None], [C4]),
    (op.subtract, {}, [(2, 1, 5, 6), IMAGE], [None, C4], [C4]),
    (op.maximum, {}, [(1, 5, 6), IMAGE], [None, C4], [C4]),
    (op.greater, {}, [IMAGE, IMAGE], [C4, None], [C4]),
    (op.nn.dropout, {}, [IMAGE], [C4], [C4, C4]),
    (op.nn.max_pool2d, {"pool_size": (3, 3), "padding": (1, 1)}, [IMAGE], [C4], [C4]),
    (op.nn.avg_pool2d, {"pool_size": (2, 2), "strides": (2, 2)}, [IMAGE], [C8], [C8]),
    (op.nn.global_avg_pool2d, {}, [IMAGE], [C4], [C4]),
    (op.nn.global_max_pool2d, {}, [IMAGE], [C4], [C4]),
    (op.nn.adaptive_avg_pool2d, {"output_size": (2, 4)}, [IMAGE], [C4], [C4]),
    (op.nn.upsampling, {"scale_h": 2.0, "scale_w": 1.5}, [IMAGE], [C4], [C4]),
    (op.image.resize2d, {"size": (7, 4), "method": "cubic"}, [IMAGE], [C8], [C8]),
    (op.nn.prelu, {"axis": 2}, [IMAGE, (5,)], [C4, None], [C4]),
    (op.nn.rms_norm, {"axis": -1}, [IMAGE, (6,)], [C4, None], [C4]),
    (op.nn.softmax, {"axis": -1}, [IMAGE], [C4], [C4]),
    (op.nn.log_softmax, {"axis": 2}, [IMAGE], [C4], [C4]),
    (op.nn.layer_norm, {"axis": 3}, [IMAGE, (6,), (6,)], [C4, None, None], [C4]),
    (op.nn.lrn, {"axis": 2, "size": 3}, [IMAGE], [C4], [C4]),
    (op.nn.bias_add, {"axis": 3}, [IMAGE, (6,)], [C4, None], [C4]),
    (op.nn.pad, {"pad_width": ((0, 0), (0, 0), (1, 2), (0, 1))}, [IMAGE, ()], [C4, None], [C4]),
    (op.sum, {"axis": (2, 3), "keepdims": True}, [IMAGE], [C4], [C4]),
    (op.mean, {"axis": (-1, -2)}, [IMAGE], [C4], ["NC4c"]),
    (op.max, {"axis": 1}, [IMAGE], [C4], [None]),
    (op.sum, {"axis": (0, 1), "exclude": True}, [IMAGE], [C4], ["NC4c"]),
    (op.concatenate, {"axis": 1}, [[IMAGE, IMAGE]], [(C4, C4)], [C4]),
    (op.concatenate, {"axis": -3}, [[IMAGE, (2, 12, 5, 6)]], [(C8, C4)], [C4]),
    (op.concatenate, {"axis": 2}, [[IMAGE, IMAGE]], [(None, C4)], [C4]),
    (op.split, {"indices_or_sections": 2, "axis": 1}, [IMAGE], [C4], [C4, C4]),
    (op.split, {"indices_or_sections": (4,), "axis": -3}, [IMAGE], [C4], [C4, C4]),
    (op.split, {"indices_or_sections": (1, 3), "axis": 2}, [IMAGE], [C4], [C4, C4, C4]),
    (op.strided_slice, {"begin": (4, 1), "end": (8, -1), "axes": (1, 3)}, [IMAGE], [C4], [C4]),
    (op.strided_slice, {"begin": (5,), "end": (-9,), "strides": (-2,), "axes": (3,)}, [IMAGE],
     [C4], [C4]),
    (op.reshape, {"newshape": (0, -1)}, [PIXEL], [C4], [None]),
    (op.reshape, {"newshape": (4, 4)}, [PIXEL], [C4], [None]),
    (op.nn.batch_flatten, {}, [PIXEL], [C4], [None]),
    (op.squeeze, {"axis": (2, 3)}, [PIXEL], [C4], ["NC4c"]),
    (op.where, {}, [IMAGE, IMAGE, ()], [None, C4, None], [C4]),
    (op.nn.batch_norm, {"axis": 2}, [IMAGE, (5,), (5,), (5,), (5,)], [C4] + [None] * 4,
     [C4, None, None]),
]

REFUSED: list[Any] = [
    (op.nn.softmax, {"axis": 1}, [IMAGE], [C4]),
    (op.nn.lrn, {"axis": 1}, [IMAGE], [C4]),
    (op.nn.batch_norm, {"axis": 1}, [IMAGE, (8,), (8,), (8,), (8,)], [C4] + [None] * 4),
    (op.nn.bias_add, {"axis": 1}, [IMAGE, (8,)], [C4, None]),
    (op.nn.prelu, {"axis": 1}, [IMAGE, (8,)], [C4, None]),
    (op.nn.pad, {"pad_width": ((0, 0), (0, 4), (0, 0), (0, 0))}, [IMAGE, ()], [C4, None]),
    (op.nn.max_pool2d, {"pool_size": (2, 2), "layout": "NHWC"}, [(2, 5, 6, 8)], [C4]),
    (op.sum, {"axis": 1, "keepdims": True}, [IMAGE], [C4]),
    (op.concatenate, {"axis": 1}, [[IMAGE, (2, 3, 5, 6)]], [(C4, None)]),
    (op.split, {"indices_or_sections": (3,), "axis": 1}, [IMAGE], [C4]),
    (op.strided_slice, {"begin": (2,), "end": (8,), "axes": (1,)}, [IMAGE], [C4]),
    (op.strided_slice, {"begin": (0,), "end": (8,), "axes": (1,), "strides": (4,)}, [IMAGE],
     [C4]),
    (op.reshape, {"newshape": (0, -1)}, [IMAGE], [C4]),
    (op.nn.batch_flatten, {}, [IMAGE], [C4]),
    (op.squeeze, {"axis": 1}, [(2, 1, 5, 6)], ["NCHW1c"]),
    (op.add, {}, [IMAGE, (5, 6)], [C4, None]),
    (op.add, {}, [IMAGE, (3, *IMAGE)], [C4, None]),
]


def _value(rng: np.random.Generator, shape: Any) -> Any:
    if isinstance(shape, list):
        return tuple(_value(rng, s) for s in shape)
    return np.asarray(rng.uniform(0.1, 1.0, shape)).astype(np.float32)


def _parsed(layout: Any) -> Any:
    if isinstance(layout, tuple):
        return tuple(_parsed(x) for x in layout)
    return None if layout is None else P(layout)


def _laid_out(value: Any, layout: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_laid_out(v, x) for v, x in zip(value, layout, strict=True))
    return value if layout is None else transform_array(value, layout.primal, layout)


def _variable(value: Any) -> Var | Tuple:
    if isinstance(value, tuple):
        return Tuple(tuple(_variable(v) for v in value))
    return var("x", value.shape, DType.of(value.dtype))


def _infer(operator: Op, attrs: dict[str, Any], shapes: Any, arriving: Any
           ) -> tuple[list[Any], Call, LayoutResult | None]:
    rng = np.random.default_rng(1)
    arrays = [_value(rng, s) for s in shapes]
    if operator is op.where:
        arrays[0] = arrays[0] > 0.5
    call = infer_expr(operator(*map(_variable, arrays), **attrs))
    assert isinstance(call, Call)
    types = tuple(a.checked_type for a in call.args)
    assert all(isinstance(t, (TensorType, TupleType)) for t in types)
    result = operator.hook("layout")(call.attrs, tuple(_parsed(x) for x in arriving), types)
    return arrays, call, result


def _outputs(operator: Op, arrays: Any, attrs: Any) -> tuple[np.ndarray, ...]:
    result = operator.reference(*arrays, **dict(attrs.items()))
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


@pytest.mark.parametrize("one", CARRIED, ids=lambda c: f"{c[0].name}-{c[2]}")
def test_same_meaning_in_the_layouts_asked_for(one: Any) -> None:
    operator, attrs, shapes, arriving, expected_layouts = one
    arrays, call, result = _infer(operator, attrs, shapes, arriving)
    assert result is not None
    assert [None if x is None else x.name for x in result.outputs] == expected_layouts
    original = _outputs(operator, arrays, call.attrs)
    laid = [_laid_out(a, x) for a, x in zip(arrays, result.inputs, strict=True)]
    typed = infer_expr(operator(*map(_variable, laid), **dict(result.attrs.items())))
    found = _outputs(operator, laid, result.attrs)
    assert [t.concrete_shape for t in output_types(typed.checked_type)] == [f.shape for f in found]
    for got, layout, want in zip(found, result.outputs, original, strict=True):
        back = got if layout is None else transform_array(got, layout, layout.primal)
        np.testing.assert_allclose(back, want, rtol=1e-6)


@pytest.mark.parametrize("one", REFUSED, ids=lambda c: f"{c[0].name}-{c[1]}")
def test_arguments_as_written_where_the_layout_does_not_carry(one: Any) -> None:
    assert _infer(*one)[2] is None


def test_nothing_is_asked_for_where_nothing_arrives_in_a_layout() -> None:
    assert _infer(op.nn.relu, {}, [IMAGE], [None])[2] is None
    assert _infer(op.add, {}, [IMAGE, IMAGE], [None, None])[2] is None


def test_blocks_of_a_single_pixel_are_in_order() -> None:
    assert keeps_order(P("NCHW4c"), (2, 8, 1, 1))
    assert not keeps_order(P("NCHW4c"), (2, 8, 1, 2))
    assert keeps_order(P("NCHW8c"), (2, 8, 1, 1))
    assert keeps_order(P("NCHW1c"), (2, 8, 5, 6))
