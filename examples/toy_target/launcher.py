"""``ToyLauncher``: runs a program in the memory of the device, kernel by kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.runtime.call_sizes import CallSizes
from weft.runtime.devices.cpu.steps import Steps, StepsLaunch
from weft.runtime.launchers import Code, Launch
from weft.runtime.library import Library
from weft.runtime.profile import StepTime
from weft.runtime.run_control import RunControl

from .memory import MEMORY


class ToyLaunch(StepsLaunch):
    """A call: inputs are copied to the device, the kernels run, outputs are copied back."""

    profile = Launch.profile  # the whole call, with its copies

    def launch(self, inputs: list[Any], outputs: list[Any], times: list[StepTime] | None = None,
               control: RunControl | None = None) -> None:
        """Run on arrays of the host."""
        arguments = [MEMORY.upload(array) for array in inputs]
        results = [MEMORY.allocate(array.nbytes) for array in outputs]
        there = [block.array(array.shape, array.dtype)
                 for block, array in zip((*arguments, *results), (*inputs, *outputs), strict=True)]
        super().launch(there[:len(inputs)], there[len(inputs):], times, control)
        for array, result in zip(outputs, there[len(inputs):], strict=True):
            np.copyto(array, result)


class ToyLauncher(Steps):
    """A program with its constants and its state on the device."""

    def __init__(self, code: Code, library: Library) -> None:
        super().__init__(code, library)
        self._kept = [MEMORY.upload(self.constants)]
        self.constants_address = self._kept[0].address
        for name, array in self.state.items():
            self._kept.append(MEMORY.upload(array))
            self.state.share({name: self._kept[-1].array(array.shape, array.dtype)})

    def at(self, sizes: CallSizes) -> Launch:
        """The program at these sizes."""
        return ToyLaunch(self, sizes)
