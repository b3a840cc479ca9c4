"""Choices in first-order programs are branches of the compiled ``main``."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import MAX_NESTING, lower_program, try_lower_program
from weft.ir.expr import Function, If, Tuple, TupleGetItem, const, var
from weft.runtime.manifest import Manifest
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("cache_of_module", "verified_once")

TEXT = """
def @main(%c: bool, %x: Tensor[(2, 3), float32]) {
  let %y = if (%c) { tanh(%x) } else {
    if (less(sum(%x), 1f)) { %x } else { exp(negative(%x)) }
  };
  (%y, add(%y, %x), %c)
}"""
CASES = [(flag, sign) for flag in (True, False) for sign in (1, -1)]


def agree(module, mod, inputs):
    results = zip(module(*inputs), evaluate(mod, inputs), strict=True)
    for one, other in results:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_every_way_through(opt_level):
    mod = weft.parse(TEXT)
    module = weft.compile(mod, opt_level=opt_level)
    assert module.manifest.vm is None
    for flag, sign in CASES:
        agree(module, mod, [np.bool_(flag), np.full((2, 3), sign, np.float32)])


def test_an_artifact_has_the_branches(tmp_path):
    mod = weft.parse(TEXT)
    weft.compile(mod).export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    for flag, sign in CASES:
        agree(loaded, mod, [np.bool_(flag), np.full((2, 3), sign, np.float32)])


def test_profiles_leave_out_what_did_not_run():
    module = weft.compile(weft.parse(TEXT))
    x = np.ones((2, 3), np.float32)
    taken = {k.op for k in module.profile(np.bool_(True), x, repeat=1).kernels}
    other = {k.op for k in module.profile(np.bool_(False), x, repeat=1).kernels}
    assert "tanh" in taken
    assert "less" not in taken
    assert {"sum", "less"} <= other
    assert "tanh" not in other


def test_calls_are_reported_with_the_branches(capsys):
    with weft.config(debug=2):
        module = weft.compile(weft.parse(TEXT))
    capsys.readouterr()
    with weft.config(debug=2):
        module(np.bool_(True), np.ones((2, 3), np.float32))
    err = capsys.readouterr().err
    assert "tanh" in err
    assert "less" not in err


def test_manifests_keep_guards():
    manifest = weft.compile(weft.parse(TEXT)).manifest
    assert any(step.guards for step in manifest.steps)
    assert Manifest.from_json(manifest.to_json()) == manifest
    plain = json.loads(manifest.to_json())
    for step in plain["steps"]:
        del step["guards"]  # as written before there were branches
    assert not any(step.guards for step in Manifest.from_json(json.dumps(plain)).steps)


def test_what_only_a_branch_needs_is_computed_there():
    mod = weft.parse(TEXT)
    program = lower_program(run_pipeline(mod, CompileOptions.make()))
    guards = {program.kernels[s.kernel].text: len(s.guards) for s in program.steps}
    assert guards["tanh"] == 1
    assert guards["sum"] == 1
    assert guards["add"] == 0


def test_branches_that_compute_nothing():
    mod = weft.parse("""
        def @main(%c: bool, %x: Tensor[(2,), float32]) {
          let %p = if (%c) { (%x, const([1, 2], (2,), float32)) } else { (%x, %x) };
          (%p.0, %p.1, if (%c) { 1 } else { 2 })
        }""")
    module = weft.compile(mod)
    for flag in (True, False):
        agree(module, mod, [np.bool_(flag), np.float32([5, 6])])


@st.composite
def choices(draw):
    """Programs of nested choices over shared values, tuples among them."""
    x, c, d = var("x", (2, 2)), var("c", (), "bool"), var("d", (), "bool")
    values = [x, op.tanh(x)]

    def value(depth):
        kind = draw(st.integers(0, 4)) if depth else 0
        if kind == 0:
            return draw(st.sampled_from(values))
        if kind == 1:
            return op.add(value(depth - 1), value(depth - 1))
        if kind == 2:
            made = op.multiply(value(depth - 1), const(0.5))
            values.append(made)
            return made
        condition = draw(st.sampled_from(
            [c, d, op.logical_and(c, d), op.less(op.sum(x), const(0.0))]))
        if kind == 3:
            return If(condition, value(depth - 1), value(depth - 1))
        pair = If(condition, Tuple((value(depth - 1), x)), Tuple((value(0), value(depth - 1))))
        return op.subtract(TupleGetItem(pair, 0), TupleGetItem(pair, 1))

    body = Tuple((value(4), value(2), value(3)))
    return weft.ir.infer_type(weft.ir.IRModule.from_expr(Function((c, d, x), body)))


@settings(max_examples=40, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])
@given(mod=choices(), flags=st.tuples(st.booleans(), st.booleans()), sign=st.sampled_from([1, -1]))
def test_random_choices(mod, flags, sign):
    assert try_lower_program(run_pipeline(mod, CompileOptions.make())) is not None
    inputs = [*map(np.bool_, flags), np.float32([[1, 2], [3, 4]]) * np.float32(sign)]
    agree(weft.compile(mod), mod, inputs)


@pytest.mark.parametrize("depth", [MAX_NESTING, 100])
def test_choices_in_each_other(depth):
    x = y = var("x", ())
    for number in range(depth):
        y = If(op.less(x, const(float(number))), const(float(number)), y)
    fn = Function((x,), Tuple((y,)))
    module = weft.compile(fn)
    assert (module.manifest.vm is None) == (depth == MAX_NESTING)
    for value in (-1.0, 5.5, 1000.0):
        agree(module, weft.ir.IRModule.from_expr(fn), [np.float32(value)])


def test_many_choices_in_a_row_do_not_nest():
    x = y = var("x", (2,))
    for _ in range(3 * MAX_NESTING):
        y = If(op.less(op.sum(y), const(0.0)), op.negative(y), op.subtract(y, const(1.0)))
    fn = Function((x,), Tuple((y,)))
    module = weft.compile(fn)
    assert module.manifest.vm is None
    agree(module, weft.ir.IRModule.from_expr(fn), [np.float32([3, 4])])
