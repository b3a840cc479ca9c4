"""Invalid calls of operators, and the errors that they raise."""

from __future__ import annotations

from typing import Any

import pytest

from weft import op
from weft.ir.expr import Var, const, var
from weft.ir.op import Op
from weft.ir.shape import SymDim
from weft.ir.typing.infer import infer_expr
from weft.support.errors import AttrsError, TypeInferenceError


def f32(*shape: Any) -> Var:
    return var("x", shape, "float32")


def i32(*shape: Any) -> Var:
    return var("i", shape, "int32")


def bools(*shape: Any) -> Var:
    return var("b", shape, "bool")


IMAGE = f32(1, 3, 8, 8)

# operator, arguments, attributes, parts of the message
ILL_TYPED: list[Any] = [
    (op.exp, [i32(3)], {}, ["exp", "floating-point", "got: int32"]),
    (op.negative, [bools(3)], {}, ["negative", "not defined for booleans"]),
    (op.logical_not, [f32(3)], {}, ["logical_not", "booleans only", "got: float32"]),
    (op.add, [f32(3, 5), i32(5)], {}, ["add", "different dtypes", "expected: float32"]),
    (op.add, [bools(3), bools(3)], {}, ["add", "not defined for booleans"]),
    (op.add, [f32(3, 5), f32(4)], {}, ["do not broadcast", "expected: 5 or 1", "got: 4"]),
    (op.power, [i32(3), i32(3)], {}, ["power", "floating point only"]),
    (op.logical_and, [f32(3), f32(3)], {}, ["logical_and", "boolean"]),
    (op.where, [f32(3), f32(3), f32(3)], {}, ["where", "expected: bool", "not_equal"]),
    (op.where, [bools(3), f32(3), i32(3)], {}, ["where", "different dtypes"]),
    (op.where, [bools(4), f32(3), f32(3)], {}, ["where", "do not broadcast"]),
    (op.broadcast_to, [f32(3)], {"shape": (4,)}, ["cannot broadcast", "4 or 1", "got: 3"]),
    (op.broadcast_to, [f32(3, 1)], {"shape": (4,)}, ["smaller rank"]),
    (op.sum, [f32(3)], {"axis": 1}, ["sum", "axis 1 is out of range", "-1 <= axis < 1"]),
    (op.sum, [f32(3, 4)], {"axis": (0, -2)}, ["sum", "axis names an axis twice"]),
    (op.max, [f32(0, 3)], {"axis": 0}, ["max", "empty axis"]),
    (op.mean, [i32(3)], {}, ["mean", "floating point only"]),
    (op.argmax, [f32(3, 0)], {"axis": 1}, ["argmax", "empty axis"]),
    (op.reshape, [f32(2, 3)], {"newshape": (4, 2)}, ["reshape", "6 elements", "with 8"]),
    (op.reshape, [f32(2, 3)], {"newshape": (4, -1)}, ["divisible by 4", "got: 6"]),
    (op.reshape, [f32(6)], {"newshape": (2, 0)}, ["copies an axis"]),
    (op.transpose, [f32(2, 3)], {"axes": (0,)}, ["permutation", "2 axes"]),
    (op.transpose, [f32(2, 3)], {"axes": (0, -2)}, ["names an axis twice"]),
    (op.expand_dims, [f32(2)], {"axis": 2}, ["out of range", "-2 to 1"]),
    (op.squeeze, [f32(2, 1)], {"axis": 0}, ["size 1 can be removed", "got: 2"]),
    (op.nn.batch_flatten, [f32()], {}, ["rank 1 or more"]),
    (op.concatenate, [[f32(3, 5), f32(3, 4)]], {"axis": 0}, ["tensor 1 does not fit tensor 0"]),
    (op.concatenate, [[f32(3), i32(3)]], {}, ["different dtypes"]),
    (op.concatenate, [[f32(3), f32(3, 1)]], {}, ["number of dimensions", "rank 1"]),
    (op.split, [f32(5)], {"indices_or_sections": 2}, ["divisible by 2", "got: 5"]),
    (op.split, [f32(5)], {"indices_or_sections": (2, 7)}, ["out of range", "up to 5"]),
    (op.strided_slice, [f32(5)], {"begin": (0, 1), "end": (2,)}, ["differ in length"]),
    (op.strided_slice, [f32(5)], {"begin": (0, 1), "end": (2, 2)}, ["more slices than axes"]),
    (op.strided_slice, [f32(None)], {"begin": (0,), "end": (2,)}, ["unknown size"]),
    (op.strided_slice, [f32("n")], {"begin": (-SymDim.symbol("n"),), "end": (2,)},
     ["the sign of a bound", "where -n may be both", "n{1..}"]),
    (op.reshape, [f32("n", 4)], {"newshape": ("m", 4)},
     ["4*n elements", "the same size or symbol"]),
    (op.reshape, [f32("n")], {"newshape": (-1, 2)}, ["divisible by 2", "n{2..%2}"]),
    (op.squeeze, [f32("n", 1)], {}, ["axes of size 1 are not known", "n{2..}"]),
    (op.concatenate, [[f32("n", 3), f32("n", "m")]], {}, ["does not fit", "3 and m"]),
    (op.topk, [f32("n")], {"k": 5}, ["k exceeds", "n{5..}"]),
    (op.split, [f32("n")], {"indices_or_sections": 3}, ["equal sections", "divisible by 3"]),
    (op.take, [f32(3), f32(2)], {"axis": 0}, ["take", "integers only", "argument 1"]),
    (op.take, [f32(0), i32(2)], {"axis": 0}, ["empty axis"]),
    (op.full, [f32(2)], {"shape": (3,)}, ["not a scalar"]),
    (op.layout_transform, [f32(1, 6, 2, 2)], {"src_layout": "NCHW", "dst_layout": "NCHW4c"},
     ["NCHW4c does not fit", "C divisible by 4", "got: 6"]),
    (op.layout_transform, [f32(1, 2, 2, 2, 8)], {"src_layout": "NCHW4c", "dst_layout": "NCHW"},
     ["not of layout NCHW4c", "expected: 4", "got: 8"]),
    (op.layout_transform, [f32(6, 2)], {"src_layout": "NC", "dst_layout": "NHWC"},
     ["layout NC to NHWC"]),
    (op.layout_transform, [f32(6, 2)], {"src_layout": "nc", "dst_layout": "NC"},
     ["src_layout", "malformed layout 'nc'"]),
    (op.nn.pad, [f32(3), f32()], {"pad_width": ((1, 1), (0, 0))}, ["expected: 1 pairs"]),
    (op.nn.pad, [f32(3), i32()], {"pad_width": ((1, 1),)}, ["different dtypes"]),
    (op.nn.pad, [f32(2), f32()], {"pad_width": ((2, 0),), "pad_mode": "reflect"},
     ["too few elements", "a size of 3 or more"]),
    (op.nn.conv2d, [IMAGE, f32(4, 4, 3, 3)], {},
     ["nn.conv2d: input channels do not match", "3 input channels / groups = 1", "got: 4",
      "argument 1 (kernel), axis 1"]),
    (op.nn.conv2d, [IMAGE, f32(3, 3, 3, 64)], {"data_layout": "NHWC"}, ["input channels"]),
    (op.nn.conv2d, [IMAGE, f32(7, 7, 3, 64)], {}, ['kernel_layout="HWIO"', "(7, 7, 3, 64)"]),
    (op.nn.conv2d, [IMAGE, f32(4, 3, 3, 3)], {"groups": 2}, ["split into groups", "got: 3"]),
    (op.nn.conv2d, [f32(1, 4, 8, 8), f32(3, 2, 3, 3)], {"groups": 2}, ["output channels"]),
    (op.nn.conv2d, [IMAGE, f32(4, 3, 3)], {}, ["rank 4", "argument 1 (kernel)"]),
    (op.nn.conv2d, [IMAGE, f32(4, 3, 9, 3)], {}, ["larger than the padded data", "axis 2"]),
    (op.nn.conv2d, [IMAGE, f32(4, 3, 0, 3)], {}, ["the kernel is empty"]),
    (op.nn.conv2d, [IMAGE, f32(4, 3, 3, 3)], {"channels": 5}, ["the attribute channels"]),
    (op.nn.conv2d, [IMAGE, f32(4, 3, 3, 3)], {"kernel_size": (3, 5)}, ["kernel_size", "axis 3"]),
    (op.nn.conv2d, [IMAGE, i32(4, 3, 3, 3)], {}, ["different dtypes"]),
    (op.nn.conv2d, [IMAGE, f32(6, 3, 3, 3)], {"out_layout": "NCHW4c"}, ["C divisible by 4"]),
    (op.nn.conv2d, [f32(1, 3, 4, 8, 2), f32(4, 3, 3, 3)], {"data_layout": "NCHW2h"},
     ["only the channels"]),
    (op.nn.conv1d, [f32(1, 3, 8), f32(4, 2, 3)], {}, ["nn.conv1d: input channels", "got: 2"]),
    (op.nn.conv3d, [f32(1, 3, 2, 8, 8), f32(4, 3, 3, 3, 3)], {},
     ["larger than the padded data", "axis 2", "a size of 3"]),
    (op.nn.conv2d_transpose, [IMAGE, f32(4, 2, 3, 3)], {}, ["input channels", "3 input", "IOHW"]),
    (op.nn.conv2d_transpose, [IMAGE, f32(3, 2, 3, 3)], {"output_padding": (1, 0)},
     ["output_padding is too large", "less than the stride"]),
    (op.nn.conv2d_transpose, [IMAGE, f32(3, 2, 1, 1)], {"padding": (4, 4)},
     ["removes the whole result", "padding below 8"]),
    (op.nn.adaptive_avg_pool2d, [i32(1, 2, 4, 4)], {}, ["floating point only"]),
    (op.nn.group_norm, [IMAGE, f32(3), f32(3)], {"num_groups": 2},
     ["not divisible into groups", "divisible by num_groups = 2"]),
    (op.nn.space_to_depth, [IMAGE], {"block_size": 3}, ["not divisible into blocks", "got: 8"]),
    (op.nn.depth_to_space, [IMAGE], {"block_size": 2},
     ["not divisible into blocks", "divisible by 4"]),
    (op.image.resize2d, [IMAGE], {"size": (4, 4), "roi": (0.0, 1.0)}, ["roi", "4 numbers"]),
    (op.image.grid_sample, [IMAGE, f32(1, 3, 4, 4)], {}, ["the grid does not fit", "got: 3"]),
    (op.vision.roi_align, [IMAGE, f32(5, 4)], {"pooled_size": (2, 2)}, ["five numbers", "x0"]),
    (op.nn.nll_loss, [f32(3, 4), i32(3), f32(3)], {}, ["one weight per class"]),
    (op.nn.sparse_dense, [f32(3, 5), f32(2, 2, 2), i32(2), i32(3)], {},
     ["not divisible into blocks"]),
    (op.nn.dense, [f32(3, 5), f32(6, 4)], {}, ["inner sizes", "expected: 5", "(units, inner"]),
    (op.nn.dense, [f32(3, 5), f32(6, 5)], {"units": 7}, ["the attribute units"]),
    (op.nn.matmul, [f32(3, 5), f32(4, 6)], {}, ["inner sizes", "transpose_b is False"]),
    (op.nn.batch_matmul, [f32(2, 3, 5), f32(3, 4, 5)], {}, ["numbers of matrices", "2 or 1"]),
    (op.nn.bias_add, [f32(3, 5), f32(3)], {}, ["bias does not fit", "expected: 5", "axis 1"]),
    (op.nn.max_pool2d, [IMAGE], {"pool_size": (9, 2)}, ["window is larger", "axis 2"]),
    (op.nn.max_pool2d, [IMAGE], {"pool_size": (2, 2), "padding": (2, 2)}, ["padding below 2"]),
    (op.nn.max_pool2d, [f32(3, 8)], {"pool_size": (2, 2), "layout": "NC"}, ["axes H and W"]),
    (op.nn.avg_pool2d, [i32(1, 3, 8, 8)], {"pool_size": (2, 2)}, ["floating point only"]),
    (op.nn.global_avg_pool2d, [f32(1, 3, 0, 2)], {}, ["cannot pool an empty axis"]),
    (op.nn.softmax, [f32(3)], {"axis": 1}, ["axis 1 is out of range"]),
    (op.nn.batch_norm, [IMAGE, f32(3), f32(3), f32(4), f32(3)], {},
     ["moving_mean does not fit", "expected: 3", "got: 4"]),
    (op.nn.layer_norm, [f32(3, 5), f32(3), f32(5)], {}, ["gamma does not fit"]),
    (op.nn.lrn, [i32(1, 3)], {}, ["floating point only"]),
]

BAD_ATTRS: list[Any] = [
    (op.clip, [f32(3)], {"a_min": 0.0}, "needs 'a_max'"),
    (op.clip, [f32(3)], {"a_min": "low", "a_max": 1.0}, "wrong type"),
    (op.nn.conv2d, [IMAGE, IMAGE], {"strides": (0, 1)}, "two numbers >= 1"),
    (op.nn.conv2d, [IMAGE, IMAGE], {"padding": (1, 1, 1)}, "1, 2 (height, width) or 4"),
    (op.nn.conv2d, [IMAGE, IMAGE], {"groups": 0}, "1 or more"),
    (op.nn.conv2d, [IMAGE, IMAGE], {"stride": (1, 1)}, "no attribute 'stride'"),
    (op.reshape, [f32(3)], {"newshape": (-1, -1)}, "at most one -1"),
    (op.zeros, [], {"shape": (-1,)}, "sizes >= 0"),
    (op.cast, [f32(3)], {"dtype": 3}, "wrong type"),
    (op.take, [f32(3), i32(1)], {"mode": "fast"}, '"clip" or "wrap"'),
    (op.strided_slice, [f32(3)], {"begin": (0,), "end": (2,), "strides": (0,)}, "nonzero"),
    (op.nn.pad, [f32(3), f32()], {"pad_width": ((-1, 0),)}, "numbers >= 0"),
    (op.nn.dropout, [f32(3)], {"rate": 1.0}, "0 <= rate < 1"),
    (op.argmax, [f32(3)], {"dtype": "float32"}, "an integer dtype"),
    (op.split, [f32(3)], {"indices_or_sections": (2, 1)}, "ascending order"),
    (op.nn.relu, [f32(3)], {"axis": 1}, "no attributes"),
    (op.add, [f32(3)], {}, "add takes 2 arguments"),
]


def _name(value: Any) -> str:
    return value.name if isinstance(value, Op) else ""


@pytest.mark.parametrize(("operator", "args", "attrs", "parts"), ILL_TYPED, ids=_name)
def test_ill_typed_calls(operator: Op, args: Any, attrs: Any, parts: list[str]) -> None:
    with pytest.raises(TypeInferenceError) as caught:
        infer_expr(operator(*args, **attrs))
    message = str(caught.value)
    assert operator.name in message
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("operator", "args", "attrs", "part"), BAD_ATTRS, ids=_name)
def test_bad_attributes(operator: Op, args: Any, attrs: Any, part: str) -> None:
    with pytest.raises(AttrsError) as caught:
        operator(*args, **attrs)
    assert part in str(caught.value)


SYMBOLIC: list[Any] = [
    (op.add, [f32("n", 3), f32(1, 3)], {}, "Tensor[(n, 3), float32]"),
    (op.sum, [f32("n", 3)], {"axis": 1}, "Tensor[(n,), float32]"),
    (op.reshape, [f32("n", 3, 4)], {"newshape": (0, -1)}, "Tensor[(n, 12), float32]"),
    (op.reshape, [f32("n", 3, 4)], {"newshape": (-1, 12)}, "Tensor[(n, 12), float32]"),
    (op.nn.batch_flatten, [f32("n", 3, 4)], {}, "Tensor[(n, 12), float32]"),
    (op.concatenate, [[f32("n", 3), f32("m", 3)]], {}, "Tensor[(m + n, 3), float32]"),
    (op.split, [f32("n", 4)], {"indices_or_sections": 2, "axis": 1},
     "(Tensor[(n, 2), float32], Tensor[(n, 2), float32])"),
    (op.strided_slice, [f32("n", 8)], {"begin": (0, 1), "end": (2**31 - 1, 5)},
     "Tensor[(n, 4), float32]"),
    (op.strided_slice, [f32("n", 8)], {"begin": (-1,), "end": (2**31 - 1,)},
     "Tensor[(min(1, n), 8), float32]"),
    (op.take, [f32(10, 4), i32("n")], {"axis": 0}, "Tensor[(n, 4), float32]"),
    (op.nn.conv2d, [f32("n", 3, 8, 8), f32(4, 3, 3, 3)], {"padding": (1, 1)},
     "Tensor[(n, 4, 8, 8), float32]"),
    (op.nn.conv2d, [f32(1, 3, "h", None), f32(4, 3, 3, 3)], {"padding": (1, 1)},
     "Tensor[(1, 4, h, ?), float32]"),
    (op.nn.dense, [f32("n", 5), f32(6, 5)], {}, "Tensor[(n, 6), float32]"),
    (op.nn.batch_matmul, [f32("n", 3, 5), f32("n", 4, 5)], {}, "Tensor[(n, 3, 4), float32]"),
    (op.nn.max_pool2d, [f32("n", 3, 8, 8)], {"pool_size": (2, 2), "strides": (2, 2)},
     "Tensor[(n, 3, 4, 4), float32]"),
    (op.layout_transform, [f32("n", 32, 2, 2)], {"src_layout": "NCHW", "dst_layout": "NCHW16c"},
     "Tensor[(n, 2, 2, 2, 16), float32]"),
]


@pytest.mark.parametrize(("operator", "args", "attrs", "expected"), SYMBOLIC, ids=_name)
def test_symbolic_sizes(operator: Op, args: Any, attrs: Any, expected: str) -> None:
    assert str(infer_expr(operator(*args, **attrs)).checked_type) == expected


def test_numbers_become_constants() -> None:
    call = infer_expr(op.add(f32(3), 1.0))
    assert str(call.checked_type) == "Tensor[(3,), float32]"
    assert call.args[1].data == const(1.0).data
