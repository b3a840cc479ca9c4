"""Loops update the tensors that they carry in place, for fixed and for symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import weft
from tests.unit.compiler.vm.helpers import check
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program import model_code
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.program import Program
from weft.ir import infer_type
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("cache_of_module", "verified_once")

ROWS = """
def @main(%n: int64, %x: Tensor[(SIZE, 16), float32], %start: Tensor[(SIZE, 16), float32]) {
  let %loop = fn (%i: int64, %s: Tensor[(SIZE, 16), float32]) -> Tensor[(SIZE, 16), float32] {
    if (less(%i, %n)) {
      let %row = tanh(add(take(%x, %i, axis=0, mode="clip"), take(%s, %i, axis=0, mode="clip")));
      %loop(add(%i, 1i64), scatter_nd(%s, reshape(%i, newshape=(1)), %row))
    } else { %s }
  };
  RESULT
}"""


def rows(size: object, result: str) -> weft.ir.IRModule:
    return weft.parse(ROWS.replace("SIZE", str(size)).replace("RESULT", result))


def arrays(size: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(size)
    return [np.array(n, np.int64), *(rng.standard_normal((size, 16)).astype(np.float32)
                                     for _ in range(2))]


def lowered(mod: weft.ir.IRModule) -> Program:
    return lower_program(run_pipeline(infer_type(mod), CompileOptions.make()))


def copies(program: Program) -> list[bool]:
    """For each copy of a matrix whether it is inside of a loop."""
    return [bool(step.path) for step in program.steps
            if program.kernels[step.kernel].text == "copy"
            and len(program.kernels[step.kernel].function.params[0].annotation.shape) == 2]


# A first value that is an input, an intermediate result that is used after the loop as well, one
# that is not, and a result of the loop that another one carries on.
RESULTS = {
    "input": "%loop(0i64, %start)",
    "used after": "let %a = exp(%start); let %b = %loop(0i64, %a); add(%a, %b)",
    "own": "%loop(0i64, nn.softmax(exp(%start)))",
    "twice": "let %a = %loop(0i64, %start); let %b = %loop(2i64, %a); (%a, %b, %start)",
}


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("size", [7, "k", "k{3..}"])
@pytest.mark.parametrize("result", RESULTS)
def test_results_and_first_values(result: str, size: object) -> None:
    mod = rows(size, RESULTS[result])
    model = weft.compile(mod)
    for rounds in (0, 1, 5, 9):
        for length in (7,) if size == 7 else (3, 7, 40):
            values = arrays(length, rounds)
            given = [value.copy() for value in values]
            check(model(*values), evaluate(rows(length, RESULTS[result]), values))
            np.testing.assert_equal(values, given)
    if size != 7:
        assert model.general is not None
        assert model.sizes == ()


@pytest.mark.parametrize(("result", "expected"), [
    ("input", [False]), ("used after", [False]), ("own", []), ("twice", [False, False, False])])
def test_no_iteration_copies_the_tensor(result: str, expected: list[bool]) -> None:
    for size in (64, "k"):
        assert copies(lowered(rows(size, RESULTS[result]))) == expected


def test_a_constant_is_copied_before_it_is_updated() -> None:
    mod = rows("k", "let %zero = full(0.0, shape=[4, 16]); (%loop(0i64, %start), %zero)")
    text = str(mod).replace("(k, 16)", "(4, 16)")
    model = weft.compile(weft.parse(text.replace("%loop(0i64, %start)", "%loop(0i64, %zero)")))
    for _ in range(2):
        values = arrays(4, 3)
        changed, zero = model(*values)
        assert not zero.any()
        np.testing.assert_allclose(changed[:3], np.tanh(values[1][:3]), rtol=1e-5)


def test_a_value_that_is_read_later_in_the_iteration_is_copied() -> None:
    text = """
def @main(%n: int64, %s: Tensor[(k, 4), float32]) {
  let %loop = fn (%i: int64, %s: Tensor[(k, 4), float32], %t: Tensor[(k, 4), float32])
      -> (Tensor[(k, 4), float32], Tensor[(k, 4), float32]) {
    if (less(%i, %n)) {
      let %row = take(%t, %i, axis=0, mode="clip");
      let %next = scatter_nd(%s, reshape(%i, newshape=(1)), %row);
      %loop(add(%i, 1i64), %next, nn.softmax(add(%s, multiply(%next, 2f))))
    } else { (%s, %t) }
  };
  %loop(0i64, %s, %s)
}"""
    model = weft.compile(weft.parse(text))
    s = np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)
    for n in (0, 1, 4, 8):
        values = [np.array(n), s]
        check(model(*values), evaluate(weft.parse(text.replace("(k,", "(6,")), values))


def test_kernels_that_cannot_work_in_place_are_replaced_by_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def refuse_once(program: Program, granted: Sequence[int | None]) -> frozenset[str]:
        del granted
        asked.append({kernel.digest for kernel in program.kernels
                      if "in_place" in kernel.function.attrs})
        return frozenset() if len(asked) > 1 else frozenset(asked[0])

    monkeypatch.setattr(model_code, "updates_not_granted", refuse_once)
    model = weft.compile(rows("k{2..}", RESULTS["input"]))
    assert [bool(kernels) for kernels in asked] == [True, False]
    values = arrays(5, 4)
    check(model(*values), evaluate(rows(5, RESULTS["input"]), values))


def test_results_are_the_same_for_each_count_of_threads() -> None:
    model = weft.compile(rows("k", RESULTS["own"]))
    for length in (1, 300):
        values = arrays(length, length)
        with weft.config(threads=1):
            one = model(*values)
        with weft.config(threads=2):
            np.testing.assert_array_equal(model(*values), one)
