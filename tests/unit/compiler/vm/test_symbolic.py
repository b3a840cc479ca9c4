"""Kernels of the virtual machine in artifacts: code for all sizes, without a compiler."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.compiler.vm.symbolic import with_symbolic_kernels
from weft.runtime.artifact_loader import Loader
from weft.runtime.executable import Executable
from weft.runtime.manifest import Manifest
from weft.support.errors import ArtifactError

pytestmark = pytest.mark.usefixtures("own_cache")

GROW = """
def @grow(%n: int32, %x: Tensor[(?,), float32]) -> Tensor[(?,), float32] {{
  if (less(%n, 1)) {{ %x }} else {{ @grow(subtract(%n, 1), {}) }} }}
def @main(%n: int32, %x: Tensor[(2,), float32]) {{ {} }}"""
MATMUL = """
def @grow(%n: int32, %x: Tensor[(?, ?), float32], %y: Tensor[(?, ?), float32])
    -> Tensor[(?, ?), float32] {
  if (less(%n, 1)) { nn.softmax(nn.matmul(%x, add(%y, 1f))) } else {
    @grow(subtract(%n, 1), concatenate((%x, %x), axis=0), concatenate((%y, exp(%y)), axis=1)) } }
def @main(%n: int32, %x: Tensor[(2, 3), float32], %y: Tensor[(3, 4), float32]) {
  @grow(%n, %x, %y) }"""
TWICE = "concatenate((%x, exp(%x)), axis=0)"
X = np.float32([0, -1])


def flat(result: object) -> list[np.ndarray]:
    return list(result) if isinstance(result, tuple) else [result]


def without_compiler(path: Path) -> Executable:
    """The module of a file, as a process without a compiler loads it."""
    module, = Loader.of(path).fitting("main")
    return module


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
@pytest.mark.parametrize(("text", "rest"), [
    (GROW.format(TWICE, "@grow(%n, %x)"), [X]),
    (GROW.format("concatenate((unique(%x).0, %x), axis=0)",
                 "let %y = @grow(%n, %x); (argwhere(%y), sum(%y))"), [X]),
    (MATMUL, [np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
              np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)]),
], ids=["joined", "counted", "products"])
def test_a_file_runs_at_sizes_that_no_call_has_met(tmp_path, text, rest):
    module = weft.compile(weft.parse(text))
    module.export(tmp_path / "m.weft")
    loaded = without_compiler(tmp_path / "m.weft")
    for n in (0, 1, 4):
        inputs = [np.int32(n), *rest]
        for got, want in zip(flat(loaded(*inputs)), flat(module(*inputs)), strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_sizes_that_calls_have_met_keep_their_code(tmp_path):
    module = weft.compile(weft.parse(GROW.format(TWICE, "@grow(%n, %x)")))
    module(np.int32(1), X)
    module.export(tmp_path / "m.weft")
    program = without_compiler(tmp_path / "m.weft").manifest.vm
    assert [one.shapes for one in program.special] == [((2,),)]
    assert len(program.symbolic) == 1


BROADCAST = """
def @both(%x: Tensor[(?,), int32], %y: Tensor[(?,), int32]) -> Tensor[(?,), int32] {
  multiply(%x, %y) }
def @main(%x: Tensor[(4,), int32], %y: Tensor[(4,), int32]) {
  @both(unique(%x).0, unique(%y).0) }"""


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
@pytest.mark.parametrize(("text", "op", "shapes"), [
    (MATMUL, "nn.matmul", [("n0", "n1"), ("n1", "n2")]), (BROADCAST, "multiply", [("n0",)] * 2)])
def test_sizes_are_equal_where_an_operator_needs_it(text, op, shapes):
    module = weft.compile(weft.parse(text), symbolic_sizes=False)
    code, missing = with_symbolic_kernels(module.recompiler.code, module.recompiler.options)
    program = code.manifest.vm
    assert not missing
    found, = [Manifest.from_json(form.text) for form in program.symbolic
              if program.kernels[form.number].op == op]
    assert [spec.shape for spec in found.inputs] == shapes


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_code_for_equal_sizes_does_not_run_at_others(tmp_path):
    module = weft.compile(weft.parse(BROADCAST), symbolic_sizes=False)
    module.export(tmp_path / "m.weft", check=False)
    loaded = without_compiler(tmp_path / "m.weft")
    two, three = np.int32([4, 7, 7, 4]), np.int32([1, 2, 3, 1])
    np.testing.assert_array_equal(loaded(two, two), [16, 49])
    with pytest.raises(ArtifactError, match="kernel not compiled for these shapes"):
        loaded(two, three)


SHAPES = """
def @main(%x: Tensor[(2, 6), float32], %shape: Tensor[(2,), int64]) {
  add(dyn.reshape(%x, %shape), 1f) }"""


@pytest.mark.filterwarnings("ignore:kernels are compiled during calls")
def test_kernels_without_a_symbolic_form_are_listed_once(tmp_path, recwarn):
    module = weft.compile(weft.parse(SHAPES))
    x = np.ones((2, 6), np.float32)
    with pytest.raises(ArtifactError) as error:
        module.export(tmp_path / "m.weft")
    assert error.value.notes == ("no code for all sizes: dyn.reshape",)
    module(x, np.int64([3, 4]))
    recwarn.clear()
    for _ in range(2):
        module.export(tmp_path / "m.weft", check=False)
    warned, = [str(one.message) for one in recwarn.list]
    assert "exported for the shapes that calls have met: dyn.reshape\n" in warned
    assert "exported for the shapes that calls have met: dyn.reshape" in str(module.explain())
    loaded = without_compiler(tmp_path / "m.weft")
    assert loaded(x, np.int64([3, 4])).shape == (3, 4)
    with pytest.raises(ArtifactError, match="kernel not compiled for these shapes"):
        loaded(x, np.int64([4, 3]))


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_damaged_code_for_all_sizes_is_refused():
    module = weft.compile(weft.parse(GROW.format(TWICE, "@grow(%n, %x)")))
    code, _ = with_symbolic_kernels(module.recompiler.code, module.recompiler.options)
    program, (form,) = code.manifest.vm, code.manifest.vm.symbolic
    assert Manifest.from_json(code.manifest.to_json()) == code.manifest
    inner = json.loads(form.text)
    for damage in ({"number": 0}, {"number": 99}, {"text": "{}"},
                   {"text": json.dumps({**inner, "steps": []})},
                   {"text": json.dumps({**inner, "inputs": inner["inputs"] * 2})},
                   {"text": json.dumps({**inner, "sizes": ["other"]})}):
        broken = dataclasses.replace(form, **damage)
        plain = dataclasses.replace(
            code.manifest, vm=dataclasses.replace(program, symbolic=(broken,)))
        with pytest.raises(ArtifactError):
            Manifest.from_json(plain.to_json())
