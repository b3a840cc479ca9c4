"""Budgets of memory: measured arenas, the same values, clear errors."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.unit.compiler.test_step_order import program_of, step
from tests.unit.transform.autodiff.networks import inputs_of, mlp, resnet, transformer
from tests.unit.transform.helpers import parse_program
from weft.compiler.memory_budget import bytes_in, within
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.program import BufferKind
from weft.compiler.program.rematerialize import OverLimitError, StepCosts, rematerialize
from weft.compiler.program.step_order import live_peak
from weft.compiler.program.within_budget import KernelCosts, within_budget
from weft.support.errors import OptionError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.checkpoint.recompute import Recompute
from weft.transform.autodiff.reverse.gradient import Gradient


def flat(value):
    return [v for part in value for v in flat(part)] if isinstance(value, (tuple, list)) \
        else [np.asarray(value)]


@pytest.mark.slow
@pytest.mark.parametrize(("network", "share"), [
    (mlp(6, 64, 32), 0.5), (resnet(7, size=16), 0.65), (transformer(2), 0.7)],
    ids=["mlp", "resnet", "transformer"])
def test_arena_of_gradients(network, share):
    """The arena that calls allocate is below the budget, and all results are the same bits."""
    mod = Gradient()(network)
    plain = weft.compile(mod)
    budget = int(share * plain.manifest.arena_bytes)
    small = weft.compile(weft.remat(mod, budget))
    assert small.manifest.arena_bytes <= budget
    assert len(small.manifest.steps) > len(plain.manifest.steps)
    inputs = inputs_of(mod)
    for a, b in zip(flat(plain(*inputs)), flat(small(*inputs)), strict=True):
        np.testing.assert_array_equal(a, b)
    allocated = small.arena_nbytes - 64  # without the header of the block
    assert allocated == small.manifest.arena_bytes


@pytest.mark.parametrize("share", [0.75, 0.5])
def test_plan_of_a_gradient(share):
    options = CompileOptions.make()
    module = run_pipeline(Gradient()(mlp(8, 64, 32)), options)
    kept = []
    lower_program(module, limit=lambda p: kept.append(p) or p)
    budget = int(share * live_peak(kept[0]))
    after = within(kept[0], budget, options)
    assert live_peak(after) <= budget
    assert len(after.steps) < 1.5 * len(kept[0].steps)


def chain(length, size=1 << 12):
    """Each step reads the one before; then a second half reads all in reverse order."""
    steps = [step((), (0,)), *(step((i - 1,), (i,)) for i in range(1, length))]
    steps.append(step((length - 1,), (length,)))
    steps += [step((length + i, length - 1 - i), (length + i + 1,)) for i in range(length)]
    return program_of(steps, [size] * (2 * length + 1))


def costs_of(program):
    count = len(program.steps)
    return StepCosts((1.0,) * count, (0,) * count, (True,) * count)


def test_chain_in_memory_of_the_root():
    """A chain of n steps and its reverse run in O(sqrt n) memory for at most twice the forward."""
    program = chain(100)
    limit = 24 << 12
    after = rematerialize(program, costs_of(program), limit)
    assert live_peak(program) > 100 << 12
    assert live_peak(after.program) <= limit
    assert after.extra_seconds <= 200


@pytest.mark.parametrize("seed", range(25))
def test_random_programs_compute_the_same(seed):
    """Values as terms: a step that runs again gives what it gave the first time."""
    rng = np.random.default_rng(seed)
    steps = []
    for number in range(40):
        reads = rng.choice(number, min(number, int(rng.integers(0, 3))), replace=False)
        steps.append(step(tuple(map(int, reads)), (number,) if rng.random() < 0.8
                          else (f"o{number}", number)))
    steps.append(step(tuple(map(int, rng.choice(40, 3, replace=False))), ("o40",)))
    program = program_of(steps, [int(n) << 12 for n in rng.integers(1, 5, 40)])
    for share in (0.9, 0.7, 0.5):
        try:
            made = rematerialize(program, costs_of(program), int(share * live_peak(program)))
        except OverLimitError:
            continue
        assert live_peak(made.program) <= share * live_peak(program)
        assert terms(made.program) == terms(program)


def terms(program):
    """The outputs as digests of the computations that made them."""
    values, outputs = {}, {}
    for one in program.steps:
        made = hash((one.kernel, len(one.writes), tuple(values[r] for r in one.reads)))
        for position, ref in enumerate(one.writes):
            values[ref] = hash((made, position))
            if ref.kind is BufferKind.OUTPUT:
                outputs[ref.index] = values[ref]
    return outputs


def test_steps_that_may_not_repeat_stay_in_memory():
    program = chain(20)
    costs = costs_of(program)
    once = StepCosts(costs.seconds, costs.workspace, (False,) * len(program.steps))
    with pytest.raises(OverLimitError):
        rematerialize(program, once, 8 << 12)


def test_error_says_the_smallest_arena():
    program = chain(12)
    kernels = {0: KernelCosts(1.0, 64, may_repeat=True)}
    with pytest.raises(OptionError, match="memory budget cannot be met") as caught:
        within_budget(program, 1 << 12, lambda _: kernels)
    smallest = int(re.match(r"\d+", str(caught.value.expected))[0])
    assert live_peak(within_budget(program, smallest, lambda _: kernels)) <= smallest


def test_budgets_as_text():
    assert bytes_in("256 MB") == 256_000_000
    assert bytes_in("1.5 GiB") == 3 << 29
    assert bytes_in(" 12kb ") == 12_000
    assert bytes_in(64) == 64
    for wrong in ("many", "3 parsecs", -1, True, 1.5):
        with pytest.raises(OptionError, match="not a number of bytes"):
            bytes_in(wrong)


def test_loops_have_no_budget():
    power = parse_program("""
        def @main(%x: Tensor[(4,), float32], %n: Tensor[(), int32]) -> Tensor[(4,), float32] {
          if (greater(%n, 0)) { @main(multiply(%x, %x), subtract(%n, 1)) } else { %x }
        }""")
    with pytest.raises(UnsupportedModelError, match="without branches and loops"):
        weft.compile(weft.remat(power, "1 KB"))


def test_chosen_calls_are_computed_again():
    mod = Gradient()(mlp(6, 8, 4))
    after = weft.remat(mod, mirror=lambda call: call.op.name == "tanh")
    assert str(after).count("tanh(") > str(mod).count("tanh(")
    lowered = str(run_pipeline(after, CompileOptions.make()))
    assert "annotation.barrier" in lowered
    inputs = inputs_of(mod)
    for a, b in zip(flat(evaluate(mod, inputs)), flat(evaluate(after, inputs)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_copies_survive_the_pipeline():
    """Common subexpression elimination would undo a copy without its barrier."""
    mod = Gradient()(mlp(10, 8, 4))
    after = run_pipeline(Recompute(distance=4)(mod), CompileOptions.make())
    assert "annotation.barrier" in str(after)
