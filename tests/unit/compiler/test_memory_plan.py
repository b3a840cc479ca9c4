"""The arena plan never lets two live blocks overlap."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.compiler.program.memory_plan import ALIGNMENT, FreeList, aligned, live_ranges, plan_memory
from weft.compiler.program.program import BufferKind, BufferRef, Program, Step
from weft.runtime.device import HOST_MEMORY, Device, MemorySpace
from weft.support.errors import InternalError


def temporary(number):
    return BufferRef(BufferKind.TEMPORARY, number)


def program_of(sizes, steps):
    return Program((), (), False, (), tuple(sizes), (), tuple(steps))


def chain(sizes):
    steps = [Step(0, (BufferRef(BufferKind.INPUT, 0), temporary(0)), 1)]
    steps += [Step(0, (temporary(i - 1), temporary(i)), 1) for i in range(1, len(sizes))]
    return program_of(sizes, steps)


@st.composite
def programs(draw):
    count = draw(st.integers(1, 25))
    sizes = draw(st.lists(st.integers(0, 5000), min_size=count, max_size=count))
    steps = []
    for number in range(count):
        reads = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
        kernel = draw(st.integers(0, 3))
        steps.append(Step(kernel, (*map(temporary, reads), temporary(number)), 1))
    return program_of(sizes, steps)


@st.composite
def programs_that_reuse(draw):
    """Programs whose last kernels reuse the memory of an input of the same size at its last use."""
    program = draw(programs())
    ranges = live_ranges(program.steps)
    sizes, steps, in_place = list(program.temporaries), [], {}
    for at, step in enumerate(program.steps):
        target = step.writes[0].index
        dying = [n for n, ref in enumerate(step.reads)
                 if ranges[ref.index].last == at and step.reads.count(ref) == 1]
        kernel = step.kernel
        if dying and draw(st.booleans()):
            number = draw(st.sampled_from(dying))
            sizes[target] = sizes[step.reads[number].index]
            kernel = 4 + at
            in_place[kernel] = number
        steps.append(Step(kernel, step.buffers, 1))
    return program_of(sizes, steps), in_place


@settings(deadline=None, max_examples=150)
@given(programs_that_reuse())
def test_memory_is_reused_where_it_is_asked_for(drawn):
    program, in_place = drawn
    plan = plan_memory(program, {}, in_place)
    ranges = live_ranges(program.steps)
    pairs = {(s.reads[in_place[s.kernel]].index, s.writes[0].index)
             for s in program.steps if s.kernel in in_place}
    assert all(plan.temporaries[a] == plan.temporaries[b] for a, b in pairs)
    spans = {n: range(plan.temporaries[n], plan.temporaries[n] + aligned(size))
             for n, size in enumerate(program.temporaries)}
    for (a, live), (b, other) in itertools.combinations(ranges.items(), 2):
        together = live.first <= other.last and other.first <= live.last
        if together and (a, b) not in pairs and (b, a) not in pairs:
            assert not range(max(spans[a].start, spans[b].start), min(spans[a].stop, spans[b].stop))
    assert all(span.stop <= plan.arena_bytes[0] for span in spans.values())


@settings(deadline=None, max_examples=150)
@given(programs(), st.lists(st.integers(0, 3000), min_size=4, max_size=4))
def test_no_two_live_blocks_overlap(program, workspace):
    plan = plan_memory(program, dict(enumerate(workspace)))
    ranges = live_ranges(program.steps)
    for at, step in enumerate(program.steps):
        blocks = [(plan.temporaries[n], aligned(program.temporaries[n]))
                  for n, live in ranges.items() if live.first <= at <= live.last]
        blocks.append((plan.workspaces[at], aligned(workspace[step.kernel])))
        used = sorted(b for b in blocks if b[1])
        for (start, size), (following, _) in itertools.pairwise(used):
            assert start + size <= following
        for start, size in used:
            assert start % ALIGNMENT == 0
            assert start + size <= plan.arena_bytes[0]


def test_a_chain_needs_two_buffers():
    plan = plan_memory(chain([1024] * 10), {})
    assert plan.arena_bytes[0] == 2048
    assert set(plan.temporaries) == {0, 1024}


def test_a_workspace_lives_for_its_step_only():
    program = chain([64, 64, 64])
    plan = plan_memory(program, {0: 640})
    assert plan.arena_bytes[0] == 64 + 64 + 640
    assert len(plan.workspaces) == 3


def test_the_plan_is_the_same_every_time():
    program = chain([100, 5000, 64, 700, 1])
    assert plan_memory(program, {}) == plan_memory(program, {})


@pytest.mark.parametrize(("freed", "wanted", "offset"), [
    ([(0, 128), (256, 64)], 64, 256),  # the smallest that fits
    ([(0, 64), (64, 64)], 128, 0),  # neighbours join
    ([(448, 64)], 128, 448),  # the last block grows
    ([(0, 64)], 128, 512),  # nothing fits
])
def test_best_fit(freed, wanted, offset):
    free = FreeList()
    assert free.take(512) == 0
    for start, size in freed:
        free.give_back(start, size)
    assert free.take(wanted) == offset


SIDE = Device("side", 0)


def test_each_memory_space_has_an_arena():
    steps = (Step(0, (BufferRef(BufferKind.INPUT, 0), temporary(0)), 1),
             Step(0, (BufferRef(BufferKind.INPUT, 0), temporary(1)), 1, device=SIDE, stream=3),
             Step(1, (temporary(1), temporary(2)), 1, device=SIDE),
             Step(0, (temporary(0), BufferRef(BufferKind.OUTPUT, 0)), 1))
    program = Program((), (), False, (), (100, 200, 300), (), steps)
    spaces = (HOST_MEMORY, MemorySpace("side", SIDE, alignment=256))
    plan = plan_memory(program, {1: 10}, spaces=spaces)
    assert plan.spaces == (0, 1, 1)
    assert plan.arena_bytes == (128, 256 + 512 + 256)
    assert plan.temporaries[1:] == (0, 256)
    assert plan.workspaces == (0, 0, 768, 0)


@pytest.mark.parametrize("spaces", [(HOST_MEMORY,), (HOST_MEMORY, MemorySpace("side", SIDE))])
def test_memory_of_another_device_is_refused(spaces):
    steps = (Step(0, (BufferRef(BufferKind.INPUT, 0), temporary(0)), 1),
             Step(0, (temporary(0), BufferRef(BufferKind.OUTPUT, 0)), 1, device=SIDE))
    with pytest.raises(InternalError, match=r"no memory space|memory of another device"):
        plan_memory(Program((), (), False, (), (100,), (), steps), {}, spaces=spaces)
