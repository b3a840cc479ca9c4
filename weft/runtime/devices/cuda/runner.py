"""Runs the steps of one call: launches on the device, kernels on the host, copies, jumps."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TypeAlias

from weft.runtime.call_sizes import SizeSolver, steps_at
from weft.runtime.calls import Condition, KernelCall
from weft.runtime.devices.cuda.actions import action_of, actions_of
from weft.runtime.devices.cuda.frame import DeviceFrame
from weft.runtime.devices.cuda.step_times import StepTimer

# Addresses of branch conditions in host memory, and the value that each must have.
_Flags: TypeAlias = "list[tuple[int, bool]]"


class Runner:
    """The steps of a program on the buffers that a frame is bound to; ``timer`` times each."""

    def __init__(self, frame: DeviceFrame, timer: StepTimer | None = None) -> None:
        self._frame = frame
        self._timer = timer
        self._program = frame.program
        self._manifest = frame.program.manifest
        self._solver = SizeSolver(self._manifest) if self._manifest.counts else None

    def run(self) -> None:
        """Make the calls of one run; device work may still be under way when it returns."""
        manifest = self._manifest
        steps = steps_at(manifest, self._frame.sizes)
        if self._timer is None and not manifest.jumps and not manifest.counts \
                and not any(s.guards for s in steps):
            frame = self._frame
            for action in frame.planned(lambda: actions_of(steps, frame)):
                action(frame)
        else:
            self._run_controlled(steps)

    def _run_controlled(self, steps: Sequence[KernelCall]) -> None:
        """Follow branches and loops, whose conditions lie on the host."""
        frame = self._frame
        made = [action_of(step, frame) for step in steps] if self._timer is not None else None
        actions = made or frame.planned(lambda: [action_of(step, frame) for step in steps])
        flags = [self._flags(step.guards) for step in steps]
        jumps: dict[int, list[tuple[int, _Flags]]] = {}
        for jump in self._manifest.jumps:
            jumps.setdefault(jump.at, []).append((jump.to, self._flags(jump.guards)))
        at = 0
        while True:
            back = next((to for to, found in jumps.get(at, ()) if self._hold(found)), None)
            if back is not None:
                at = back
                continue
            if at == len(steps):
                return
            if self._hold(flags[at]):
                if self._timer is None:
                    actions[at](frame)
                else:
                    self._timer.run(steps[at], actions[at])
                if self._read_counts(at):
                    steps = steps_at(self._manifest, frame.sizes)
                    actions = [action_of(step, frame) for step in steps]
            at += 1

    def _read_counts(self, at: int) -> bool:
        """Take over the sizes that call ``at`` has counted; whether there are any."""
        frame, solver = self._frame, self._solver
        if solver is None:
            return False
        if any(count.at == at for count in self._manifest.counts):
            frame.await_copies()
        counts = {count.name: ctypes.c_int64.from_address(
            frame.value(count.counts, on_host=True) + 8 * count.which).value
            for count in self._manifest.counts if count.at == at}
        if not counts:
            return False
        frame.sizes = solver.counted(frame.sizes, counts)
        where = frame.host_outputs[-1]
        for number, count in enumerate(self._manifest.counts):
            ctypes.c_int64.from_address(where + 8 * number).value = frame.sizes.symbols[count.name]
        return True

    def _flags(self, guards: Sequence[Condition]) -> _Flags:
        return [(self._frame.value(buffer, on_host=True), expected) for buffer, expected in guards]

    def _hold(self, flags: _Flags) -> bool:
        """Whether all conditions are as expected, once they are copied to the host."""
        if flags:
            self._frame.await_copies()
        return all(bool(ctypes.c_uint8.from_address(address).value) is expected
                   for address, expected in flags)
