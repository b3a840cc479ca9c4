"""Sizes that data decides, from program to result: counted results and what reads them."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import weft
from weft.runtime.vm.plain import from_plain, to_plain
from weft.support.errors import ArtifactError, InvalidInputError, TypeInferenceError, WeftError
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("own_cache")

FOUND = """
def @main(%x: Tensor[(3, 4), float32]) {
  let %where = argwhere(greater(%x, 0f));
  let %values = gather_nd(%x, transpose(%where));
  (%where, sum(%values), unique(cast(multiply(%values, 3f), dtype="int32")))
}"""


def flat(value):
    return [leaf for v in value for leaf in flat(v)] if isinstance(value, tuple) else [value]


def test_results_have_as_many_elements_as_are_found():
    mod = weft.parse(FOUND)
    module = weft.compile(mod, symbolic_sizes=False)
    assert module.outputs[0].shape == ("?", 2)
    rng = np.random.default_rng(0)
    for x in (*rng.normal(size=(3, 3, 4)).astype(np.float32), np.full((3, 4), -1, np.float32)):
        for got, want in zip(module(x), flat(evaluate(mod, [x])), strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_counted_results_are_exported(tmp_path):
    module = weft.compile(weft.parse(
        "def @main(%x: Tensor[(9,), int32]) { (unique(%x), argwhere(%x)) }"),
        symbolic_sizes=False)
    module.export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    x = np.int32([3, 0, 3, 1, 1, 0, 0, 3, 9])
    for got, want in zip(loaded(x), module(x), strict=True):
        np.testing.assert_array_equal(got, want)
    assert [r.shape for r in loaded(x)] == [(4,), (4,), (9,), (4,), (6, 1)]


def test_a_size_that_the_program_declares_is_checked():
    module = weft.compile(weft.parse("""
        def @double(%w: Tensor[(2, 1), int64]) { add(%w, %w) }
        def @main(%x: Tensor[(4,), int32]) { @double(argwhere(%x)) }"""))
    np.testing.assert_array_equal(module(np.int32([0, 1, 0, 1])), [[2], [6]])
    with pytest.raises(InvalidInputError, match="run-time shape differs from the declared shape"):
        module(np.int32([0, 1, 0, 0]))


@pytest.mark.parametrize("counted", [((1, 0, 0),), ((0, 2, 0),)])
def test_damaged_counts_are_refused(counted):
    module = weft.compile(weft.parse("def @main(%x: Tensor[(4,), int32]) { argwhere(%x) }"),
                          symbolic_sizes=False)
    program = module.manifest.vm
    assert from_plain(json.loads(json.dumps(to_plain(program))), 0) == program
    kernel = dataclasses.replace(program.kernels[0], counted=counted)
    broken = dataclasses.replace(program, kernels=(kernel, *program.kernels[1:]))
    with pytest.raises(ArtifactError, match="corrupt program"):
        from_plain(json.loads(json.dumps(to_plain(broken))), 0)


SHAPES = """
def @main(%x: Tensor[(2, 6), float32], %shape: Tensor[(2,), int64], %k: int64) {
  let %y = dyn.reshape(%x, %shape);
  let %best = dyn.topk(exp(%y), %k, axis=0);
  (add(%y, 1f), %best, dyn.full(2f, %shape), dyn.zeros(%shape, dtype="int8"))
}"""


def test_shapes_as_operands_are_met_at_run_time():
    mod = weft.parse(SHAPES)
    with pytest.warns(weft.FallbackWarning, match="compiled during calls.*dyn.full"):
        module = weft.compile(mod)
    x = np.random.default_rng(1).normal(size=(2, 6)).astype(np.float32)
    for shape, k in (((3, 4), 2), ((4, 3), 1), ((3, 4), 0), ((12, 1), 12)):
        inputs = [x, np.int64(shape), np.int64(k)]
        for got, want in zip(module(*inputs), flat(evaluate(mod, inputs)), strict=True):
            assert got.shape == want.shape
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5)
    with pytest.raises(TypeInferenceError, match="k exceeds the number of elements"):
        module(x, np.int64([3, 4]), np.int64(9))
    with pytest.raises(WeftError, match="number of elements"):
        module(x, np.int64([5, 4]), np.int64(1))


def test_constant_shapes_make_a_static_program():
    module = weft.compile(weft.parse("""
        def @main(%x: Tensor[(2, 6), float32]) {
          let %s = multiply(shape_of(%x), const([2, 1], (2,), int64));
          dyn.broadcast_to(sum(dyn.reshape(%x, const([3, 4], (2,), int64))), %s)
        }"""))
    assert module.outputs[0].shape == (4, 6)
    assert module.manifest.vm is None
    np.testing.assert_allclose(module(np.ones((2, 6), np.float32)), np.full((4, 6), 12.0))


def test_slices_move_without_new_code(tmp_path):
    module = weft.compile(weft.parse("""
        def @main(%x: Tensor[(5, 7), float32], %at: Tensor[(1,), int64], %to: Tensor[(1,), int64]) {
          dyn.strided_slice(%x, %at, %to, const([2], (1,), int64), axes=(1,))
        }"""))
    module.export(tmp_path / "m.weft")  # there is one kernel for all places
    loaded = weft.load(tmp_path / "m.weft")
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    for start, stop in ((0, 7), (3, 4), (-4, 99), (6, 2)):
        got = loaded(x, np.int64([start]), np.int64([stop]))
        np.testing.assert_array_equal(got, x[:, start:stop:2])
        assert got.flags.c_contiguous
