"""Passes that change the storage of values: mixed precision and layouts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.transform.helpers import (
    check_example,
    check_values,
    example_of,
    op_calls,
    parse_program,
    random_inputs,
)
from weft.ir.passes import parse_pipeline
from weft.ir.structural import assert_structural_equal
from weft.ir.verify import verify_module
from weft.support.errors import OptionError
from weft.transform.analysis.reference import evaluate
from weft.transform.layout.convert_layout import ConvertLayout
from weft.transform.precision.to_mixed_precision import ToMixedPrecision

NHWC = ConvertLayout(layouts=("nn.conv2d:NHWC:HWIO",))
NETWORK = """
    def @main(%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(4, 4, 3, 3), float32],
              %b: Tensor[(4,), float32]) {
      %0 = nn.relu(nn.bias_add(nn.conv2d(%x, %w, padding=(1, 1)), %b));
      %1 = nn.max_pool2d(nn.conv2d(%0, %w, padding=(1, 1)), pool_size=(2, 2), strides=(2, 2));
      %2 = concatenate((%1, tanh(%1)), axis=1);
      %3 = add(%2, const([1, 2, 3, 4, 5, 6, 7, 8], (8, 1, 1), float32));
      %4 = nn.softmax(nn.pad(%3, 0f, pad_width=((0, 0), (1, 1), (0, 0), (0, 2))), axis=1);
      (mean(%4, axis=(2, 3)), sum(%4, axis=(1,), keepdims=True), sum(%4, axis=(0,)),
       nn.global_avg_pool2d(%4), transpose(%4, axes=(0, 2, 3, 1)))
    }"""


def test_examples():
    before, expected = example_of(ToMixedPrecision)
    after = ToMixedPrecision()(before)
    assert_structural_equal(after, expected)
    verify_module(after)
    check_example(NHWC)


def _check_near(before, after, rtol):
    verify_module(after)
    inputs = random_inputs(before["main"])
    for e, g in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
        assert (e.shape, e.dtype) == (g.shape, g.dtype)
        np.testing.assert_allclose(g, e, rtol=rtol, atol=rtol * np.abs(e).max())


@pytest.mark.parametrize("options", ["", "dtype=bfloat16", "accumulate=float32"])
def test_a_network_in_mixed_precision(options):
    mod = parse_program(NETWORK)
    after = parse_pipeline(f"to_mixed_precision{{{options}}}")(mod)
    _check_near(mod, after, 0.1 if "bfloat" in options else 0.01)
    text = str(after)
    low = "bfloat16" if "bfloat" in options else "float16"
    assert text.count(f'"{low}"') >= 2
    assert op_calls(after).count("cast") <= 10


def test_following_operators_stay_low_and_others_do_not():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 4), float32], %i: Tensor[(2, 4), int32]) {
          %0 = nn.dense(%x, %x);
          %1 = split(maximum(%0, 2f), indices_or_sections=2, axis=1);
          (add(%1.0, %1.1), add(%0, sum(%x)), equal(%0, %0), %i)
        }""")
    after = ToMixedPrecision()(mod)
    verify_module(after)
    text = str(after)
    assert str(after["main"].ret_type or "") == str(mod["main"].ret_type or "")
    assert "maximum" in text
    calls = {n: i for i, n in enumerate(op_calls(after))}
    assert calls["split"] < calls["add"]
    assert op_calls(after).count("cast") <= 5


def test_results_are_cast_back_to_their_types():
    mod = parse_program("""
        def @main(%x: Tensor[(2, 4), float32]) { (nn.relu(nn.dense(%x, %x)), exp(%x)) }""")
    after = ToMixedPrecision()(mod)
    assert after["main"].body.checked_type == mod["main"].body.checked_type
    assert op_calls(after) == ["cast", "nn.dense", "nn.relu", "cast", "exp"]


def test_only_16_bits_are_mixed():
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    with pytest.raises(OptionError, match="16-bit"):
        ToMixedPrecision(dtype="float64")(mod)


def test_layouts_reach_from_the_first_convolution_to_the_last():
    mod = parse_program(NETWORK)
    after = parse_pipeline("convert_layout{layouts=(nn.conv2d:NHWC:HWIO)}")(mod)
    check_values(mod, after)
    transposes = op_calls(after).count("transpose")
    # One for the data, one for the weight, and those of the results that are wanted as written.
    assert transposes == 5
    back = ConvertLayout(layouts=("nn.conv2d:NCHW:OIHW", "nn.max_pool2d:NCHW"))(after)
    check_values(mod, back)


def test_unknown_operators_take_their_data_as_it_was_written():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 4, 4, 4), float32], %w: Tensor[(4, 4, 1, 1), float32]) {
          %0 = nn.conv2d(%x, %w);
          reshape(%0, newshape=(8, 8))
        }""")
    after = NHWC(mod)
    check_values(mod, after)
    assert op_calls(after) == ["transpose", "transpose", "nn.conv2d", "transpose", "reshape"]
    skipped = ConvertLayout(layouts=("nn.conv2d:NHWC",), skip=("nn.conv2d",))
    assert skipped(mod) is mod


@pytest.mark.parametrize("entry", ["nn.conv2d", "nn.conv2d:NCHW16c", "nn.conv2d:NHWC:HWIO:X"])
def test_unreadable_layouts(entry):
    mod = parse_program(NETWORK)
    with pytest.raises(OptionError, match="malformed layout option"):
        ConvertLayout(layouts=(entry,))(mod)


def test_operators_with_several_results_take_their_data_as_it_was_written():
    mod = parse_program("""
        def @main(%x: Tensor[(1, 4, 4, 4), float32], %w: Tensor[(4, 4, 1, 1), float32],
                  %s: Tensor[(4,), float32]) {
          %0 = nn.batch_norm(nn.conv2d(%x, %w), %s, %s, %s, exp(%s));
          nn.relu(%0.0)
        }""")
    check_values(mod, NHWC(mod))
