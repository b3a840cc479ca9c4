"""Sizes that calls have often: a thread makes kernels for them, which give the same bits."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from unittest.mock import Mock

import numpy as np
import onnx
import onnx.parser
import pytest

import weft
from weft.runtime.frequent_sizes import MOST_SIZES, FrequentSizes
from weft.runtime.improvement import Improvement

AFTER = 3
NET = """
def @main(%x: Tensor[(2, h, h), float32]) {
  %pooled = nn.max_pool1d(%x, pool_size=[3], strides=[2], padding=[1, 1]);
  (argsort(%pooled, axis=-1), nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1]]),
   tanh(%x), nn.softmax(%x))
}"""


COPY = """
def @main(%x: Tensor[(2, h, h), float32]) {
  (nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 1]]), nn.softmax(%x))
}"""


@pytest.fixture
def compiled(own_cache):
    with weft.config(specialize_after=AFTER):
        yield lambda model: weft.compile(model if not isinstance(model, str) else weft.parse(model))


def data(size):
    """Few different numbers, so that elements of a row are equal; zeros of both signs, NaN."""
    numbers = np.array([-0.0, 0.0, 1.0, 2.0, np.nan], np.float32)
    return numbers[np.random.default_rng(size).integers(0, 5, (2, size, size))]


def bits(results):
    return [np.asarray(x).view(np.uint8).tolist() for x in results]


def variants(mod):
    """The sizes of the variants of each step, by its operator."""
    return {step.op: [[test.low for test in variant.tests] for variant in step.variants]
            for step in mod.manifest.steps}


def call_often(mod, size):
    for _ in range(AFTER):
        found = mod(data(size))
    return found


def test_kernels_for_a_size_take_their_place_and_keep_the_bits(compiled):
    mod = compiled(NET)
    before = {size: bits(mod(data(size))) for size in (5, 16, 33)}
    assert mod.wait_until_optimized()
    assert not any(variants(mod).values())
    for size in (5, 16):
        call_often(mod, size)
        assert mod.wait_until_optimized(timeout=60)
    found = variants(mod)
    assert found.pop("nn.softmax") == []  # its sums would be added in another order
    assert set(map(str, found.values())) == {"[[5], [16]]"}
    assert {size: bits(mod(data(size))) for size in before} == before
    assert "kernels for h=5; h=16 are in place" in mod.explain()
    fixed = weft.compile(weft.parse(NET.replace("h, h", "16, 16")))
    assert bits(fixed(data(16))[:3]) == before[16][:3]


def test_few_sizes_have_kernels_of_their_own(compiled):
    mod = compiled(COPY)
    for size in range(1, MOST_SIZES + 3):
        call_often(mod, size)
        assert mod.wait_until_optimized(timeout=60)
    wanted = [[size] for size in range(1, MOST_SIZES + 1)]
    assert variants(mod)["nn.pad"] == wanted
    call_often(mod, 1)  # has them already
    assert variants(mod)["nn.pad"] == wanted


def test_a_model_that_cannot_be_compiled_again_goes_on(tmp_path, compiled, caplog):
    path = tmp_path / "net.ir"
    path.write_text(COPY)
    mod = compiled(path)
    expected = bits(mod(data(7)))
    path.write_text(COPY.replace("0f", "1f"))
    with caplog.at_level(logging.WARNING, "weft.compiler"):
        call_often(mod, 7)
        assert not mod.wait_until_optimized(timeout=60)
    assert "calls stay slower" in caplog.text
    assert "could not be made" in mod.explain()
    assert bits(call_often(mod, 7)) == expected


def test_a_call_does_not_fail_where_no_thread_can_start(compiled, monkeypatch):
    mod = compiled(COPY)
    expected = bits(mod(data(7)))

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert bits(call_often(mod, 7)) == expected
    assert not mod.wait_until_optimized(timeout=10)
    assert "could not be made (can't start new thread)" in mod.explain()


def test_calls_that_another_thread_has_cleared_are_few():
    class Cleared(Counter):
        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.clear()

    frequent = FrequentSizes(Mock(), AFTER)
    frequent._calls = Cleared()
    frequent.note(((5, 5),), None)  # which looks for no sizes
    assert frequent.sizes == ()


def test_a_forked_child_does_not_say_that_kernels_are_in_place():
    frequent = FrequentSizes(Mock(), AFTER)
    frequent.sizes = ({"n": 2},)
    frequent.improvement = Improvement(None, None, "net")
    assert frequent.text.endswith("for n=2 are being made")
    frequent.improvement._process = -1
    assert frequent.text.endswith("for n=2 were not made before the process ended or was forked")


def test_kernels_have_the_weights_of_now(compiled):
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        "g (float[n, 8] x) => (float[n, 8] y) <float[8] bias = {1, 2, 3, 4, 5, 6, 7, 8}> "
        "{ y = Add(x, bias) }")
    mod, x = compiled(model), np.ones((5, 8), np.float32)
    for factor in (1, 2):
        bias = np.arange(1, 9, dtype=np.float32) * factor
        mod.set_weights({"bias": bias})
        for _ in range(AFTER):
            np.testing.assert_array_equal(mod(x), x + bias)
        assert mod.wait_until_optimized(timeout=60)
        assert list(variants(mod).values()) == [[[5]]]
        np.testing.assert_array_equal(mod(x), x + bias)


def test_state_goes_on_when_kernels_are_exchanged(own_cache):
    with weft.config(specialize_after=AFTER):
        mod = weft.compile(weft.parse("""
        def @main(%x: Tensor[(n,), float32], %total: Tensor[(1,), float32]) {
          %now = add(%total, sum(%x)); (tanh(%x), %now)
        }"""), state={"output1": "total"})
    x = np.ones(6, np.float32)
    for _ in range(AFTER):
        mod(x)
    assert mod.wait_until_optimized(timeout=60)
    assert [6] in [[test.low for test in variant.tests]
                   for step in mod.manifest.steps for variant in step.variants]
    mod(x)
    assert mod.state["total"].tolist() == [6.0 * (AFTER + 1)]


def test_nothing_is_counted_unless_it_is_asked_for(own_cache):
    mod = weft.compile(weft.parse(COPY))
    for _ in range(2):
        call_often(mod, 5)
    assert mod._launches.frequent is None
    assert not any(variants(mod).values())
