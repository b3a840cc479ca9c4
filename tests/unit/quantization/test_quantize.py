"""``weft.quantize``: its arguments, its errors, and its reports."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from weft import op
from weft.ir import Constant, Function, IRModule, Span, infer_type, var
from weft.support.errors import InvalidInputError, OptionError


def two_layers(k=64, n=32, seed=0):
    """Two dense layers with the names of weights that an import gives."""
    rng = np.random.default_rng(seed)
    x = var("x", (4, k))
    first, second = (Constant(rng.standard_normal(shape).astype(np.float32),
                              span=Span("<test>", node=f"{name}.weight"))
                     for name, shape in (("up", (n, k)), ("down", (16, n))))
    body = op.nn.dense(op.nn.relu(op.nn.dense(x, first)), second)
    return infer_type(IRModule.from_expr(Function((x,), body)))


def test_sixteen_bits_keep_the_result_within_their_rounding():
    net = two_layers()
    small = weft.quantize(net, scheme="bf16")
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    expected = weft.compile(net)(x)
    found = weft.compile(small)(x)
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)
    assert [(one.layer, one.before, one.after) for one in small.report.layers] \
        == [("up", "float32", "bfloat16"), ("down", "float32", "bfloat16")]
    assert all(0 < one.error < 0.004 for one in small.report.layers)


def test_a_report_is_a_table_a_dictionary_and_a_page():
    report = weft.quantize(two_layers(), scheme="bf16").report
    assert "bf16: 2 of 2 layers quantised" in str(report)
    assert "up" in str(report).splitlines()[2]
    assert json.loads(json.dumps(report.to_dict()))["layers"][0]["shape"] == [32, 64]
    assert report.to_html().count("<tr>") == 3
    assert report.bytes_after * 2 == report.bytes_before == 4 * (32 * 64 + 16 * 32)


@pytest.mark.parametrize(("arguments", "error", "says"), [
    ({"scheme": "int5"}, OptionError, "unknown scheme 'int5'"),
    ({"scheme": "bf16", "kep": "x"}, OptionError, "did you mean 'keep'"),
    ({"scheme": "bf16", "max_error": 0.0}, OptionError, "max_error is not a bound"),
    ({"scheme": "bf16", "damping": 0.0}, OptionError, "damping is out of range"),
    ({"scheme": "bf16", "data": [{"y": 1}]}, InvalidInputError, "unknown input 'y'"),
    ({"scheme": "bf16", "data": [(1, 2)]}, InvalidInputError, "lacks inputs, or has too many"),
    ({"scheme": "bf16", "data": []}, InvalidInputError, "no batches"),
    ({"scheme": "bf16", "data": 3}, InvalidInputError, "not a list of batches"),
], ids=["scheme", "option", "bound", "damping", "input", "arrays", "empty", "number"])
def test_errors_name_what_is_wrong(arguments, error, says):
    with pytest.raises(error, match=says):
        weft.quantize(two_layers(), **arguments)
