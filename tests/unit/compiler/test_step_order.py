"""Steps in an order with less live memory."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import parse_program
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.program import BufferKind, BufferRef, Program, Step
from weft.compiler.program.step_order import in_order_of_least_memory, live_peak


def program_of(steps, sizes):
    return Program((), (), False, (), tuple(sizes), (), tuple(steps))


def step(reads, writes):
    buffers = [BufferRef(BufferKind.TEMPORARY, n) if isinstance(n, int)
               else BufferRef(BufferKind.OUTPUT, int(n[1:])) for n in (*reads, *writes)]
    return Step(0, tuple(buffers), len(writes))


def test_a_step_that_frees_memory_runs_at_once():
    """The reductions of 0 and 1 to results wait for nothing."""
    late = program_of([step((), (0,)), step((), (1,)), step((), (2,)), step((0,), ("o0",)),
                       step((1,), ("o1",)), step((2,), ("o2",))], [1 << 20] * 3)
    early = in_order_of_least_memory(late)
    assert live_peak(late) == 3 << 20
    assert live_peak(early) == 1 << 20
    assert sorted(map(str, early.steps)) == sorted(map(str, late.steps))


def test_an_order_that_is_as_good_stays():
    good = program_of([step((), (0,)), step((0,), (1,)), step((1,), ("o0",))], [64, 64])
    assert in_order_of_least_memory(good) is good


@pytest.mark.parametrize("seed", range(30))
def test_every_step_comes_after_those_it_depends_on(seed):
    rng = np.random.default_rng(seed)
    steps, count = [], 25
    for number in range(count):
        reads = tuple(rng.choice(number, min(number, int(rng.integers(0, 3))), replace=False))
        steps.append(step(tuple(map(int, reads)), (number,)))
    program = program_of(steps, [int(n) for n in rng.integers(1, 5, count) << 12])
    written: set[int] = set()
    after = in_order_of_least_memory(program)
    for one in after.steps:
        assert {r.index for r in one.reads} <= written
        written.update(r.index for r in one.writes)
    assert written == set(range(count))
    assert live_peak(after) <= live_peak(program)


def test_values_stay():
    mod = parse_program("""
        def @main(%x: Tensor[(64, 256), float32]) {
          let %a = cumsum(%x, axis=1);
          let %b = cumsum(%a, axis=1);
          let %c = cumsum(%b, axis=1);
          (sum(sort(%c)), sum(sort(%b)), sum(sort(%a)))
        }""")
    x = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    program = lower_program(run_pipeline(mod, CompileOptions.make()))
    assert len(program.steps) >= 6
    sums = weft.compile(mod)(x)
    line = x
    for got in reversed(sums):
        line = np.cumsum(line, axis=1, dtype=np.float32)
        np.testing.assert_allclose(got, line.sum(dtype=np.float64), rtol=1e-4)
