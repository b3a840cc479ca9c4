"""The steps of a program as a task graph, for placement by cost.

Inputs are tasks of the host that take no time, and so is the end of the program, which reads the
outputs: so placement pays for the copies to and from the memory of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from weft.codegen.cost_model import CostModel
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.device_options import DeviceSpec, device_of
from weft.compiler.program.devices.copies import is_copy
from weft.compiler.program.devices.regions import Region, must_run_on_host
from weft.compiler.program.in_place import IN_PLACE
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    Program,
    Step,
    buffer_bytes,
)
from weft.compiler.program.symbols import symbol_specs
from weft.ir import SizeRange, VirtualDevice, typical_size
from weft.runtime.device import HOST, Device
from weft.runtime.devices.sim.description import Links, SimDevice
from weft.runtime.sizes import Size, evaluate
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.transform.placement.task_graph import DeviceModel, Link, Task, TaskInput, Topology

# A lane learns of the end of another lane's work, and starts: measured between Python threads.
HANDOVER_SECONDS = 3e-5


@dataclass(frozen=True, slots=True)
class StepTasks:
    """``tasks`` of the steps of a program; ``step_tasks`` has the number of each step's task."""

    tasks: tuple[Task, ...]
    step_tasks: tuple[int, ...]


def topology_of(devices: Sequence[DeviceSpec]) -> Topology:
    """The devices of a program and the host, with the links between their memories."""
    simulated = [one for one in devices if isinstance(one, SimDevice)]
    models = [DeviceModel(one.device, memory_bytes=one.memory) for one in simulated]
    models.append(DeviceModel(HOST))
    links = Links(simulated)
    known = [model.device for model in models]
    between = {(a, b): links.between(a, b) for a in known for b in known if a != b}
    return Topology(tuple(models), {
        ends: Link(speed.bandwidth, speed.latency + HANDOVER_SECONDS)
        for ends, speed in between.items()})


def tasks_of(program: Program, facts: Sequence[KernelFacts], regions: Sequence[Region | None],
             devices: Sequence[DeviceSpec], costs: CostModel, *, soft: bool,
             measured: Mapping[str, float] | None = None) -> StepTasks:
    """The tasks of a program on ``devices``; ``measured`` are seconds of kernels by symbol.

    ``costs`` estimates the kernels that have no better estimate. With ``soft``, a region that wants
    another device is on the first one; ``TargetError`` otherwise.
    """
    return _Tasks(program, facts, regions, devices, costs, soft, measured or {}).run()


@dataclass(slots=True)
class _Tasks:
    program: Program
    facts: Sequence[KernelFacts]
    regions: Sequence[Region | None]
    devices: Sequence[DeviceSpec]
    costs: CostModel
    soft: bool
    measured: Mapping[str, float]
    tasks: list[Task] = field(default_factory=list)
    writers: dict[BufferRef, list[int]] = field(default_factory=dict)
    readers: dict[BufferRef, list[int]] = field(default_factory=dict)
    buffers: dict[BufferRef, int] = field(default_factory=dict)
    scopes: dict[object, int] = field(default_factory=dict)
    typical: dict[str, int] = field(default_factory=dict)

    def run(self) -> StepTasks:
        program = self.program
        self.typical = {s.name: SizeRange(s.low, s.high, s.multiple).typical
                        for s in symbol_specs(program.inputs)}
        for number, port in enumerate(program.inputs):
            ref = BufferRef(BufferKind.INPUT, number)
            self.writers[ref] = [self._add(Task(port.name, "input", {HOST: 0.0}))]
        numbers = [self._step(at, step) for at, step in enumerate(program.steps)]
        outputs = [BufferRef(BufferKind.OUTPUT, n) for n in range(len(program.outputs))]
        self._add(Task("outputs", "output", {HOST: 0.0},
                       tuple(one for ref in outputs for one in self._reads(ref))))
        return StepTasks(tuple(self.tasks), tuple(numbers))

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1

    def _step(self, at: int, step: Step) -> int:
        source = self.program.kernels[step.kernel]
        written = set(step.writes)
        reused = source.function.attrs.get(IN_PLACE)
        if isinstance(reused, int):
            written.add(step.reads[reused])
        inputs = [one for ref in dict.fromkeys(step.reads) for one in self._reads(ref)]
        inputs += [one for scope in step.path if isinstance(scope, Guard)
                   for one in self._reads(scope.condition)]
        inputs += [TaskInput(number) for ref in step.after for number in self.writers.get(ref, ())]
        before = {number for ref in written
                  for number in (*self.readers.get(ref, ()), *self.writers.get(ref, ()))}
        inputs += [TaskInput(number) for number in sorted(before)]
        number = self._add(Task(
            f"{at} {source.text}", source.text, self._seconds(step), tuple(inputs),
            self._pin(at), self._class(at), self._memory(step)))
        for ref in step.reads:
            self.readers.setdefault(ref, []).append(number)
        for ref in written:
            known = self.writers.setdefault(ref, [])
            # A buffer that several steps write holds parts, or values of branches, of each.
            known.append(number)
        return number

    def _reads(self, ref: BufferRef) -> list[TaskInput]:
        buffer = self.buffers.setdefault(ref, len(self.buffers))
        nbytes = typical_size(buffer_bytes(self.program, ref))
        return [TaskInput(writer, nbytes, buffer) for writer in self.writers.get(ref, ())]

    def _memory(self, step: Step) -> int:
        made = sum(typical_size(buffer_bytes(self.program, ref)) for ref in step.writes
                   if ref.kind is not BufferKind.STATE)
        return made + self._size(self.facts[step.kernel].workspace_bytes)

    def _size(self, size: Size) -> int:
        return max(0, evaluate(size, self.typical))

    def _seconds(self, step: Step) -> dict[Device, float]:
        source, facts = self.program.kernels[step.kernel], self.facts[step.kernel]
        if is_copy(self.program, step):
            return {HOST: 0.0, **{device_of(one): 0.0 for one in self.devices}}
        seconds = self.measured.get(facts.symbol) or self._estimate(facts)
        if must_run_on_host(source):
            return {HOST: seconds}
        return {device_of(one): seconds / (one.threads if isinstance(one, SimDevice) else 1)
                for one in self.devices}

    def _estimate(self, facts: KernelFacts) -> float:
        costs, flops = self.costs, self._size(facts.flops)
        if not facts.seconds:
            return costs.kernel_seconds(flops, self._size(facts.bytes_moved))
        # The estimate of the default schedule is that of its memory traffic.
        is_default = facts.implementation.endswith(".default")
        return max(costs.launch_seconds + facts.seconds,
                   costs.kernel_seconds(flops, 0) if is_default else 0.0)

    def _pin(self, at: int) -> VirtualDevice | None:
        region = self.regions[at]
        if region is None:
            return None
        known = [device_of(one) for one in self.devices]
        if any(region.wanted.matches(device) for device in known):
            return region.wanted
        if self.soft:
            return VirtualDevice.of(known[0])
        raise TargetError(
            f"the program has no device {region.wanted}", expected=", ".join(map(str, known)),
            help="name it in devices=[...], or compile with soft_placement=True")

    def _class(self, at: int) -> int | None:
        """What is together with a step: its region, or the branch or loop that it is in."""
        region, path = self.regions[at], self.program.steps[at].path
        if region is None and not path:
            return None
        if region is not None:
            key: object = "region", region.number
        else:
            scope = path[0]
            key = scope.condition if isinstance(scope, Guard) else scope.number
        return self.scopes.setdefault(key, len(self.scopes))
