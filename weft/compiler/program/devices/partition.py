"""Spreads a program over its devices: regions, placement, copies, order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.codegen import backend_of
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.device_options import BY_COST, BY_PROFILE, device_of
from weft.compiler.options import CompileOptions
from weft.compiler.program.devices.copies import is_copy, with_copies
from weft.compiler.program.devices.order import is_straight, reordered
from weft.compiler.program.devices.regions import conditions_of, dissolve
from weft.compiler.program.devices.tasks import StepTasks, tasks_of, topology_of
from weft.compiler.program.program import BufferKind, BufferRef, Program
from weft.runtime.device import HOST, Device
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.transform.placement.explain import explain_placement, task_lines
from weft.transform.placement.place_tasks import place_tasks
from weft.transform.placement.simulate import simulate
from weft.transform.placement.task_graph import Task, Topology


@dataclass(frozen=True, slots=True)
class Chosen:
    """The devices of the steps of a program, and their order."""

    devices: tuple[Device, ...]
    order: tuple[int, ...]


def partitioned(program: Program, facts: Sequence[KernelFacts], options: CompileOptions,
                measured: Mapping[str, float] | None = None) -> Program:
    """The program on the devices of ``options``, with the copies between their memories.

    ``facts`` are those of its kernels, ``measured`` their seconds by symbol. Raises ``TargetError``
    for annotations that cannot be met.
    """
    dissolved = dissolve(program)
    program = dissolved.program
    costs = backend_of(options.target).cost_model(options.target)
    made = tasks_of(program, facts, dissolved.regions, options.devices, costs,
                    soft=options.soft_placement, measured=measured)
    chosen = _chosen(made, topology_of(options.devices), options)
    return spread(program, chosen.devices, chosen.order)


def spread(program: Program, devices: Sequence[Device], order: Sequence[int] | None = None
           ) -> Program:
    """The program with step ``n`` on ``devices[n]``; ``order`` is that of the steps."""
    if order is not None and is_straight(program):
        program = reordered(program, order)
        devices = [devices[at] for at in order]
    memories = _memories(program, devices)
    return with_copies(program, devices, memories, kernels_of_devices=False)


def _chosen(made: StepTasks, topology: Topology, options: CompileOptions) -> Chosen:
    if options.placement in (BY_COST, BY_PROFILE):
        placement = place_tasks(made.tasks, topology)
        devices, order = placement.devices, placement.order
        explain_placement(task_lines(made.tasks, placement))
    else:
        first = device_of(options.devices[0])
        devices = tuple(_default(task, first, topology) for task in made.tasks)
        order = simulate(made.tasks, topology, devices).order
        explain_placement(f"{task.name}: {device}, {_reason(task)}"
                          for task, device in zip(made.tasks, devices, strict=True))
    step_of = {task: at for at, task in enumerate(made.step_tasks)}
    return Chosen(tuple(devices[task] for task in made.step_tasks),
                  tuple(step_of[task] for task in order if task in step_of))


def _reason(task: Task) -> str:
    if task.pinned is not None:
        return f"pinned to {task.pinned}"
    return "the only one" if len(task.seconds) == 1 else "the first device"


def _default(task: Task, first: Device, topology: Topology) -> Device:
    """The device of a task by its annotations alone."""
    allowed = [model.device for model in topology.devices if model.device in task.seconds]
    pinned = task.pinned
    if pinned is not None:
        matching = [one for one in allowed if pinned.matches(one)]
        if not matching:
            raise TargetError(f"no device {pinned} can run a step",
                              expected=", ".join(map(str, allowed)))
        allowed = matching
    return first if first in allowed else allowed[0]


def _memories(program: Program, devices: Sequence[Device]) -> dict[BufferRef, Device]:
    """Where each buffer lies: with the steps that write it, if these are on one device.

    Inputs, outputs, and what the host reads to decide about branches are in the memory of the host.
    A state is with the step that updates it, or the first that reads it.
    """
    writers: dict[BufferRef, set[Device]] = {}
    readers: dict[BufferRef, Device] = {}
    copied: list[BufferRef] = []
    for step, device in zip(program.steps, devices, strict=True):
        if is_copy(program, step):
            copied += step.buffers
            continue
        for ref in step.writes:
            writers.setdefault(ref, set()).add(device)
        for ref in step.reads:
            readers.setdefault(ref, device)
    found: dict[BufferRef, Device] = {}
    for ref, written in writers.items():
        found[ref] = next(iter(written)) if len(written) == 1 else HOST
    for ref, device in readers.items():
        found.setdefault(ref, device)  # states that are read alone, and results of copies
    for ref in copied:
        found.setdefault(ref, HOST)
    on_host = conditions_of(program)
    return {ref: HOST if ref in on_host or ref.kind in (BufferKind.INPUT, BufferKind.OUTPUT)
            else device for ref, device in found.items()
            if ref.kind is not BufferKind.CONSTANT}
