"""A compiled module whose kernels the runtime launches, one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from weft.runtime.arena import address_of
from weft.runtime.module import CompiledModule
from weft.runtime.outputs import output_maker
from weft.runtime.profile import report_kernels


class StepModule(CompiledModule):
    """A program without ``weft_main``: its calls walk the steps and jumps of the manifest.

    The library launches a kernel on a device and stream; branch conditions and results are read
    once all launches are done.
    """

    def _bind_code(self) -> None:
        self._constants_address = address_of(self._constants)
        self._makers = [output_maker(s) for s in self.manifest.outputs]
        self._frames = self._frame_pool()
        self._counted = None

    def _bound(self, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> Callable[[], object]:
        return functools.partial(self._execute, arrays, outputs)

    def _execute(self, values: Sequence[Any], outputs: Sequence[np.ndarray] | None = None
                 ) -> list[np.ndarray]:
        self._apply_threads()
        results = self._made_outputs() if outputs is None else list(outputs)
        with self._stepper(self._arrays(values), results) as stepper:
            times = stepper.run(is_timed=self._watched)
        if self._watched:
            report_kernels(times)
        return results
