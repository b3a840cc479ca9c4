"""The steps of a program as actions on a frame: launches, kernels on the host, copies.

Device addresses are fixed when the actions are made; addresses on the host are read when they run,
as the arrays of the host differ from call to call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft.runtime.calls import DEVICE_COPY, KernelCall
from weft.runtime.device import HOST
from weft.runtime.devices.cuda.frame import DeviceFrame
from weft.runtime.devices.cuda.kernel import PreparedLaunch
from weft.runtime.devices.cuda.sequence import LaunchSequence
from weft.runtime.sizes import evaluate

# The frame is an argument: an action that kept it would form a cycle with it.
Action: TypeAlias = "Callable[[DeviceFrame], None]"


def actions_of(steps: Sequence[KernelCall], frame: DeviceFrame) -> list[Action]:
    """What to do for each step; consecutive launches are one action."""
    made: list[Action] = []
    pending: list[PreparedLaunch] = []
    for step in steps:
        if _is_launch(step):
            pending += _launches(step, frame)
            continue
        if pending:
            made.append(_launching(pending, frame))
            pending = []
        made.append(action_of(step, frame))
    if pending:
        made.append(_launching(pending, frame))
    return made


def action_of(step: KernelCall, frame: DeviceFrame) -> Action:
    """What to do for one step."""
    if _is_launch(step):
        return _launching(_launches(step, frame), frame)
    return _copy(step, frame) if step.symbol == DEVICE_COPY else _host_call(step, frame)


def _is_launch(step: KernelCall) -> bool:
    return step.device != HOST and step.symbol != DEVICE_COPY


def _launches(step: KernelCall, frame: DeviceFrame) -> list[PreparedLaunch]:
    arguments = [frame.value(argument, on_host=False) for argument in step.args]
    return frame.program.library.loaded(step.symbol).launches(arguments)


def _launching(launches: Sequence[PreparedLaunch], frame: DeviceFrame) -> Action:
    sequence = LaunchSequence(frame.program.library, launches)
    return lambda _: sequence.run()


def _host_call(step: KernelCall, frame: DeviceFrame) -> Action:
    kernel = frame.program.library.kernel(step.symbol, len(step.args))

    def call(frame: DeviceFrame) -> None:
        # Copies to the host give the kernel its operands; copies from the host may still read the
        # buffers that it writes.
        frame.await_copies()
        kernel(*[frame.value(a, on_host=True) for a in step.args])

    return call


def _copy(step: KernelCall, frame: DeviceFrame) -> Action:
    nbytes = evaluate(step.bytes_moved, frame.sizes.symbols)
    source, target = step.args

    def copy(frame: DeviceFrame) -> None:
        program = frame.program
        driver, stream = program.context.driver, program.context.compute
        read = frame.value(source, on_host=step.source == HOST)
        written = frame.value(target, on_host=step.device == HOST)
        if not nbytes:
            return
        if step.source == HOST:
            driver.copy_to_device(written, read, nbytes, stream)
            frame.note_copy()
        elif step.device == HOST:
            driver.copy_to_host(written, read, nbytes, stream)
            frame.note_copy()
        else:
            driver.copy_on_device(written, read, nbytes, stream)

    return copy
