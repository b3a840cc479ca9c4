"""docs/schedules.md shows what benchmarks/schedule_steps.py runs, and each step is right."""

from __future__ import annotations

import re

import numpy as np
import pytest

from benchmarks import schedule_steps as steps
from tests.docs.coverage_page import ROOT
from weft import te
from weft.codegen.llvm.build import emit_assembly
from weft.support.errors import ScheduleError
from weft.target import CpuTarget, Target
from weft.tir.eval import evaluate
from weft.tir.transform.pipeline import lower_prim_func

PAGE = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```([\w-]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SMALL = steps.Tile(mr=3, vectors=2, lanes=4)
EACH_STEP = pytest.mark.parametrize("step", steps.STEPS, ids=lambda s: s.__name__)


def blocks(kind: str) -> list[str]:
    return [text for found, text in BLOCKS if found == kind]


def operands(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(n)
    a, b = rng.uniform(-1, 1, (2, n, n)).astype(np.float32)
    return [a, b, np.full((n, n), np.nan, np.float32)]


@EACH_STEP
@pytest.mark.parametrize("n", [1, 8, 13])
def test_step_computes_the_gemm(step, n):
    func = steps.lowered(step, n, SMALL)
    a, b, c = operands(n)
    scratch = [np.zeros(p.static_shape, np.float32) for p in func.params[3:]]
    evaluate(func, a, b, c, *scratch)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)


@EACH_STEP
def test_step_as_machine_code(step):
    func = steps.lowered(step, 101, steps.Tile.of(CpuTarget.host()))
    a, b, c = operands(101)
    steps.Compiled(func, threads=2)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_threads_change_no_bit():
    func = steps.lowered(steps.parallel, 70, steps.Tile.of(CpuTarget.host()))
    found = []
    for threads in (1, 2, 3):
        a, b, c = operands(70)
        steps.Compiled(func, threads)(a, b, c)
        found.append(c)
    assert all(np.array_equal(found[0], c) for c in found)


def test_the_tile_of_the_page_fits_the_registers():
    for target in ("llvm -mcpu=haswell", "llvm -mcpu=znver4"):
        wide = Target.of(target)
        tile = steps.Tile.of(wide)
        assert tile.mr * tile.vectors + tile.vectors + 1 <= wide.vector_registers
    assert (tile.mr, tile.vectors) == (8, 3)


def test_the_page_shows_the_functions_that_run():
    source = (ROOT / "benchmarks" / "schedule_steps.py").read_text(encoding="utf-8")
    source = re.sub(r" +# noqa.*", "", source)
    shown = blocks("python")
    assert all(f"\n{text}" in source for text in shown)
    for step in steps.STEPS:
        assert any(text.startswith(f"def {step.__name__}(") for text in shown)


def test_the_page_shows_the_loops_and_the_refusal():
    loops, message = blocks("text")
    (refused,) = blocks("python-refused")
    schedule, arguments = steps.naive(1024, SMALL)
    assert str(te.lower(schedule, arguments, "naive")).rstrip("\n") == loops.rstrip("\n")
    with pytest.raises(ScheduleError) as caught:
        eval(refused, {"s": schedule, "c": arguments[-1]})
    assert caught.value.render() == message.rstrip("\n")


def test_the_instruction_of_the_page_replaces_the_loops():
    scope = {"te": te, "lower_prim_func": lower_prim_func}
    for text in blocks("python-instruction"):
        exec(text, scope)
    (loops,) = blocks("loops")
    func = scope["func"]
    assert str(func) == loops.rstrip("\n")
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (8, 32)).astype(np.uint8)
    y = rng.integers(-128, 128, (8, 48, 4)).astype(np.int8)
    z = np.zeros((8, 48), np.int32)
    evaluate(func, x, y, z)
    want = np.einsum("mgk,gnk->mn", x.reshape(8, 8, 4).astype(int), y.astype(int))
    np.testing.assert_array_equal(z, want)
    assert "vpdpbusd" in emit_assembly(func, Target.of("llvm -mcpu=znver4"))
