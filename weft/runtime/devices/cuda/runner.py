"""Runs the steps of one call: launches on the device, kernels on the host, copies, jumps."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.runtime.call_sizes import SizeSolver, steps_at
from weft.runtime.calls import DEVICE_COPY, Condition, KernelCall
from weft.runtime.device import HOST
from weft.runtime.devices.cuda.frame import DeviceFrame
from weft.runtime.devices.cuda.kernel import PreparedLaunch
from weft.runtime.sizes import evaluate

Action: TypeAlias = "Callable[[], None]"
# Addresses of branch conditions in host memory, and the value that each must have.
_Flags: TypeAlias = "list[tuple[int, bool]]"


class Runner:
    """The steps of a program on the buffers that a frame is bound to."""

    def __init__(self, frame: DeviceFrame) -> None:
        self._frame = frame
        self._program = frame.program
        self._manifest = frame.program.manifest
        self._solver = SizeSolver(self._manifest) if self._manifest.counts else None

    def run(self) -> None:
        """Make the calls of one run; device work may still be under way when it returns."""
        manifest = self._manifest
        steps = steps_at(manifest, self._frame.sizes)
        if not manifest.jumps and not manifest.counts and not any(s.guards for s in steps):
            for action in self.actions(steps):
                action()
        else:
            self._run_controlled(steps)

    def actions(self, steps: Sequence[KernelCall]) -> list[Action]:
        """What to do for each step; consecutive launches are one action."""
        made: list[Action] = []
        pending: list[PreparedLaunch] = []
        for step in steps:
            if step.device != HOST and step.symbol != DEVICE_COPY:
                pending += self._launches(step)
                continue
            if pending:
                made.append(self._launching(pending))
                pending = []
            made.append(self._action(step))
        if pending:
            made.append(self._launching(pending))
        return made

    def _run_controlled(self, steps: Sequence[KernelCall]) -> None:
        """Follow branches and loops, whose conditions lie on the host."""
        actions = [self._action(step) for step in steps]
        flags = [self._flags(step.guards) for step in steps]
        jumps: dict[int, list[tuple[int, _Flags]]] = {}
        for jump in self._manifest.jumps:
            jumps.setdefault(jump.at, []).append((jump.to, self._flags(jump.guards)))
        at = 0
        while True:
            back = next((to for to, found in jumps.get(at, ()) if _hold(found)), None)
            if back is not None:
                at = back
                continue
            if at == len(steps):
                return
            if _hold(flags[at]):
                actions[at]()
                if self._read_counts(at):
                    steps = steps_at(self._manifest, self._frame.sizes)
                    actions = [self._action(step) for step in steps]
            at += 1

    def _read_counts(self, at: int) -> bool:
        """Take over the sizes that call ``at`` has counted; whether there are any."""
        frame, solver = self._frame, self._solver
        if solver is None:
            return False
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

    def _action(self, step: KernelCall) -> Action:
        if step.symbol == DEVICE_COPY:
            return self._copy(step)
        if step.device != HOST:
            return self._launching(self._launches(step))
        kernel = self._program.library.kernel(step.symbol, len(step.args))
        arguments = [self._frame.value(a, on_host=True) for a in step.args]
        return lambda: kernel(*arguments)

    def _launches(self, step: KernelCall) -> list[PreparedLaunch]:
        arguments = [self._frame.value(a, on_host=False) for a in step.args]
        return self._program.library.loaded(step.symbol).launches(arguments)

    def _launching(self, launches: Sequence[PreparedLaunch]) -> Action:
        library, stream = self._program.library, self._program.context.compute

        def run() -> None:
            for launch in launches:
                library.launch(launch, stream)

        return run

    def _copy(self, step: KernelCall) -> Action:
        context, library = self._program.context, self._program.library
        driver, stream = context.driver, context.compute
        source, target = step.args
        read = self._frame.value(source, on_host=step.source == HOST)
        written = self._frame.value(target, on_host=step.device == HOST)
        nbytes = evaluate(step.bytes_moved, self._frame.sizes.symbols)

        def copy() -> None:
            if not nbytes:
                return
            if step.source == HOST:
                driver.copy_to_device(written, read, nbytes, stream)
            elif step.device == HOST:
                driver.copy_to_host(written, read, nbytes, stream)
                library.synchronize()
            else:
                driver.copy_on_device(written, read, nbytes, stream)

        return copy

    def _flags(self, guards: Sequence[Condition]) -> _Flags:
        return [(self._frame.value(buffer, on_host=True), expected) for buffer, expected in guards]


def _hold(flags: _Flags) -> bool:
    return all(bool(ctypes.c_uint8.from_address(address).value) is expected
               for address, expected in flags)
