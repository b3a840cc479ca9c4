"""The order that the measuring process gets: which point of which kernel, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from weft.ir.expr import Function
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.target import Target
from weft.tune.task import KernelTask


@dataclass(frozen=True, slots=True)
class Order:
    """Time ``implementation`` of a kernel for up to ``seconds``, under the same ``settings``."""

    kernel: str
    text: str
    function: Function
    target: Target
    implementation: str
    threads: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)

    def task(self) -> KernelTask:
        """The task that the kernel came from."""
        task = KernelTask.of(self.kernel, self.text, self.function, self.target)
        if task is None:
            raise InternalError("a kernel without a choice cannot be measured", where=self.text)
        return task
