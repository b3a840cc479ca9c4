"""Programs that are broken on purpose: the verifiers of ``WEFT_VERIFY`` name what is wrong."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from typing import Any

import pytest

import weft
from tests.unit.compiler.devices.placing import sims
from weft.compiler.program import model_code
from weft.compiler.program.devices.verify_lanes import verify_lanes
from weft.compiler.program.program import BufferKind, Program, Step
from weft.compiler.program.verify import named, verify_program
from weft.compiler.program.verify_memory import verify_memory
from weft.support.errors import InternalError

CHAIN = """
def @main(%x: Tensor[(64, 66), float32]) {
  let %a = nn.softmax(%x);
  let %b = nn.softmax(nn.dense(%a, %x));
  let %c = nn.dense(%b, %b);
  (nn.dense(%c, %c), nn.softmax(%c))
}"""
CHOICE = """
def @main(%x: Tensor[(4, 4), float32], %c: bool) {
  let %y = if (%c) { nn.softmax(%x) } else { nn.dense(%x, %x) };
  let %z = if (%c) { %y } else { nn.softmax(%y) };
  nn.dense(%y, %z)
}"""
LOOP = """
def @main(%n: int32, %x: Tensor[(8, 8), float32], %w: Tensor[(8, 8), float32]) {
  let %loop = fn (%i: int32, %s: Tensor[(8, 8), float32]) -> Tensor[(8, 8), float32] {
    if (less(%i, %n)) { %loop(add(%i, 1), tanh(nn.dense(nn.softmax(%s), %w))) } else { %s }
  };
  let %outer = fn (%i: int32, %s: Tensor[(8, 8), float32]) -> Tensor[(8, 8), float32] {
    if (less(%i, 3)) { %outer(add(%i, 1), add(%loop(%i, %s), %x)) } else { nn.softmax(%s) }
  };
  nn.dense(%outer(0, %x), %w)
}"""
ON_TWO = """
def @main(%x: Tensor[(8, 8), float32]) {
  let %a = annotation.on_device(nn.softmax(%x), device="sim:0");
  let %b = annotation.on_device(nn.softmax(nn.dense(%x, %a)), device="sim:1");
  nn.dense(%a, %b)
}"""


@dataclasses.dataclass
class Built:
    """What the verifiers were given for a model."""

    program: Program
    launches: Any
    facts: Any
    manifest: Any = None

    def with_steps(self, steps: list[Step]) -> Program:
        return dataclasses.replace(self.program, steps=tuple(steps))


def built(text: str, **options: Any) -> Built:
    found: list[Built] = []

    def memory(program, launches, facts):
        found.append(Built(program, launches, facts))
        verify_memory(program, launches, facts)

    def lanes(program, launches, facts, manifest):
        found[-1].manifest = manifest
        verify_lanes(program, launches, facts, manifest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_code, "verify_memory", memory)
        patch.setattr("weft.compiler.program.devices.verify_lanes.verify_lanes", lanes)
        with tempfile.TemporaryDirectory() as folder:
            patch.setenv("WEFT_CACHE_DIR", folder)
            weft.compile(weft.parse(text), **options)
    return found[-1]


@functools.cache
def plain(text: str) -> Built:
    return built(text)


@pytest.fixture(scope="module", params=[CHAIN, CHOICE, LOOP], ids=["chain", "choice", "loop"])
def one(request: pytest.FixtureRequest) -> Built:
    return plain(request.param)


@pytest.fixture(scope="module")
def two() -> Built:
    return built(ON_TWO, devices=sims(2), placement=None)


def broken(program: Program) -> str:
    with pytest.raises(InternalError) as caught:
        verify_program(program, "a fault")
    return str(caught.value)


def test_a_program_without_one_of_its_steps(one: Built) -> None:
    """It writes nothing; a step of a loop that writes over a value from before is another fault."""
    steps = one.program.steps
    for at, step in enumerate(steps):
        if any(other.path == step.path[:len(other.path)] and set(step.writes) <= set(other.writes)
               for other in steps[:at]):
            continue
        others = dataclasses.replace(step, num_outputs=0, buffers=step.reads)
        text = broken(one.with_steps([*steps[:at], others, *steps[at + 1:]]))
        assert "before it is written, after a fault" in text
        assert any(f"{named(ref)} is read" in text for ref in step.writes)


@pytest.mark.parametrize("text", [CHAIN, LOOP])
def test_a_step_before_the_one_whose_result_it_reads(text: str) -> None:
    one = plain(text)
    steps = list(one.program.steps)
    swapped = 0
    for at in range(len(steps) - 1):
        first, second = steps[at:at + 2]
        if first.path == second.path and not set(first.reads).intersection(first.writes) \
                and set(first.writes).intersection(second.reads):
            other = [*steps[:at], second, first, *steps[at + 2:]]
            assert f"step {at} " in broken(one.with_steps(other))
            swapped += 1
    assert swapped


def test_a_write_under_one_branch_is_no_write_under_the_other() -> None:
    one = plain(CHOICE)
    steps = list(one.program.steps)
    guarded = [at for at, step in enumerate(steps) if step.guards]
    for at in guarded:
        negated = dataclasses.replace(steps[at], path=tuple(
            dataclasses.replace(guard, expected=not guard.expected) for guard in steps[at].guards))
        text = broken(one.with_steps([*steps[:at], negated, *steps[at + 1:]]))
        assert "written under if" in text
        assert "path: always" in text or "path: if" in text


def test_a_value_of_the_last_turn_is_none_of_the_first() -> None:
    """Without the copies that start the variables of a loop, its first turn reads nothing."""
    one = plain(LOOP)
    first = min(jump.loop.first for jump in one.program.jumps)
    for at in range(first):
        step = one.program.steps[at]
        others = dataclasses.replace(step, num_outputs=0, buffers=step.reads)
        steps = [*one.program.steps[:at], others, *one.program.steps[at + 1:]]
        assert "before it is written" in broken(one.with_steps(steps))


def test_a_program_without_one_of_its_copies(two: Built) -> None:
    steps = list(two.program.steps)
    copies = [at for at, step in enumerate(steps) if step.source is not None]
    assert len(copies) >= 4
    for at in copies:
        assert "before it is written" in broken(two.with_steps([*steps[:at], *steps[at + 1:]]))


def test_a_step_on_another_device(two: Built) -> None:
    steps = list(two.program.steps)
    devices = {step.device for step in steps}
    for at, step in enumerate(steps):
        if step.writes[0].kind is BufferKind.OUTPUT:
            continue  # which nothing else uses
        for device in devices - {step.device}:
            moved = dataclasses.replace(step, device=device)
            text = broken(two.with_steps([*steps[:at], moved, *steps[at + 1:]]))
            assert "two memories" in text or "within one memory" in text


def test_two_live_buffers_at_one_place(one: Built) -> None:
    """Each temporary, moved to the offset of one with an overlapping live range."""
    places = {ref: argument for step, launch in zip(
        one.program.steps, one.launches.launches, strict=True)
        for ref, argument in zip(step.buffers, launch.args, strict=False)
        if ref.kind is BufferKind.TEMPORARY}
    found = 0
    for step in one.program.steps:
        both = [ref for ref in dict.fromkeys(step.buffers) if ref in places]
        if step.num_outputs == 1 and len(both) > 1 and places[both[0]] != places[both[-1]]:
            with pytest.raises(InternalError, match=r"does not hold its value|writes over memory"):
                verify_memory(one.program, moved(one, {places[both[-1]]: places[both[0]]}),
                              one.facts)
            found += 1
    assert found


def moved(one: Built, places: dict) -> Any:
    return dataclasses.replace(one.launches, launches=tuple(
        dataclasses.replace(launch, args=tuple(places.get(arg, arg) for arg in launch.args))
        for launch in one.launches.launches))


def test_launches_that_are_not_the_steps(one: Built) -> None:
    launches = one.launches.launches
    for wrong in (launches[:-1], (*launches[:-1], launches[0]),
                  (dataclasses.replace(launches[0], symbol="other"), *launches[1:])):
        with pytest.raises(InternalError, match="launch"):
            verify_memory(one.program, dataclasses.replace(one.launches, launches=wrong),
                          one.facts)


def test_lanes_that_do_not_wait(two: Built) -> None:
    steps = two.manifest.steps
    waiting = [at for at, call in enumerate(steps) if call.waits]
    assert waiting
    for at in waiting:
        calls = (*steps[:at], dataclasses.replace(steps[at], waits=()), *steps[at + 1:])
        with pytest.raises(InternalError, match="race in memory"):
            verify_lanes(two.program, two.launches, two.facts,
                         dataclasses.replace(two.manifest, steps=calls))


def test_a_copy_on_the_lane_of_kernels(two: Built) -> None:
    """Its segment took in the kernels behind it, which were then never called."""
    steps = two.manifest.steps
    at = next(n for n, call in enumerate(steps) if call.symbol == "device_copy")
    wrong = dataclasses.replace(steps[at], source=steps[at].device, waits=())
    calls = (*steps[:at], wrong, *(dataclasses.replace(call, device=wrong.device, waits=())
                                   for call in steps[at + 1:] if call.symbol != "device_copy"))
    program = dataclasses.replace(two.program, steps=tuple(
        step for n, step in enumerate(two.program.steps)
        if n <= at or step.source is None))
    with pytest.raises(InternalError, match="a segment that does not run it"):
        verify_lanes(program, two.launches, two.facts,
                     dataclasses.replace(two.manifest, steps=calls))


@pytest.mark.parametrize(("level", "fails"), [("0", False), ("1", True)])
def test_it_runs_after_memory_planning(monkeypatch: pytest.MonkeyPatch, level: str,
                                       fails: bool) -> None:
    plan = model_code.plan_memory

    def wrong(*args: Any, **options: Any) -> Any:
        made = plan(*args, **options)
        return dataclasses.replace(made, temporaries=(0,) * len(made.temporaries))

    monkeypatch.setattr(model_code, "plan_memory", wrong)
    with weft.config(verify=int(level)):
        if not fails:
            built(CHAIN)
            return
        with pytest.raises(InternalError, match="memory"):
            built(CHAIN)
