"""A kernel to tune: its function, the implementations to search among, and what it is worth."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from weft.codegen import backend_of
from weft.ir.expr import Function
from weft.ir.op import Op
from weft.strategy import schedule_function
from weft.strategy.build_tensors import anchor_of
from weft.strategy.implementation import Implementation
from weft.strategy.selection import candidates, named
from weft.strategy.space import Space
from weft.strategy.work import count_bytes, count_flops
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, WeftError
from weft.target import CpuTarget, Target
from weft.tir import PrimFunc
from weft.tir.transform.registered import TirInsertion


@dataclass(frozen=True, slots=True)
class KernelTask:
    """A kernel that a program calls ``count`` times, with its implementations as preferred.

    ``tir_passes`` are those of the user; with them, or if it ``is_foreign``, only this process can
    build it.
    """

    kernel: str
    text: str
    function: Function
    target: Target
    implementations: tuple[Implementation, ...]
    count: int = 1
    tir_passes: Sequence[TirInsertion] = ()
    is_foreign: bool = False

    @staticmethod
    def of(kernel: str, text: str, function: Function, target: Target, *, count: int = 1,
           tir_passes: Sequence[TirInsertion] = (), is_foreign: bool = False) -> KernelTask | None:
        """The task; ``None`` for a kernel without a choice."""
        anchor = anchor_of(function)
        if anchor is None or not isinstance(anchor.op, Op):
            return None
        try:
            found = candidates(anchor, target)
        except WeftError:  # the program is not built from this kernel, or tells of it
            return None
        task = KernelTask(kernel, text, function, target, tuple(found), count, tir_passes,
                          is_foreign)
        return task if len(found) > 1 or task.spaces else None

    @property
    def default(self) -> Implementation:
        """The choice of the cost model."""
        return self.implementations[0]

    @property
    def spaces(self) -> Mapping[str, Space]:
        """The spaces of the implementations that have one, by name."""
        found = {one.name: one.space() for one in self.implementations if one.space is not None}
        return {name: space for name, space in found.items() if space.size > 1}

    def named(self, name: str) -> Implementation | None:
        """The implementation of a name; ``None`` if this kernel has none so named."""
        return named(self.implementations, name)

    def seed(self, seed: int) -> int:
        """The seed of the random choices for this kernel."""
        return int.from_bytes(hashlib.sha256(f"{seed} {self.kernel}".encode()).digest()[:8], "big")


@dataclass(frozen=True, slots=True)
class LoweredPoint:
    """The loops of a point, the predicted seconds, and its features."""

    func: PrimFunc
    predicted: float
    features: tuple[float, ...]


def lower_point(task: KernelTask, implementation: Implementation) -> LoweredPoint:
    """Lower one point; raises what scheduling and lowering raise."""
    kernel = schedule_function(task.function, task.target, implementation)
    backend = backend_of(task.target)
    func = backend.lower(kernel.loop_nest("kernel"), insertions=task.tir_passes)
    fallback = kernel.seconds or 1.0
    if isinstance(task.target, CpuTarget):
        from weft.strategy.cpu.prediction.features import NAMES, features_of

        found = features_of(func, task.target)
        if found is not None:
            seconds, features = found
            return LoweredPoint(func, seconds, tuple(features.get(name, 0.0) for name in NAMES))
    predicted = backend.cost_model(task.target).predict(func)
    return LoweredPoint(func, fallback if predicted is None else predicted.seconds, ())


def limit_of(task: KernelTask) -> float:
    """The least seconds of a kernel on one core by the machine model; 0 if it is unknown."""
    if not isinstance(task.target, CpuTarget):
        return 0.0
    from weft.strategy.cpu.machine_model import machine_model

    kernel = schedule_function(task.function, task.target, task.default)
    inputs, outputs = (kernel.tensors[:-kernel.num_outputs], kernel.tensors[-kernel.num_outputs:])
    flops, moved = count_flops(outputs), count_bytes(inputs, outputs)
    if not (isinstance(flops, int) and isinstance(moved, int)):
        raise InternalError("a kernel of symbolic sizes cannot be tuned", where=task.text)
    model = machine_model(task.target)
    cycles = model.roofline_cycles(flops, outputs[0].dtype.itemsize, moved)
    return model.seconds(cycles)
