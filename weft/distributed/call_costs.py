"""The seconds of calls on one device, by the roofline of the target's cost model."""

from __future__ import annotations

from weft.codegen.backend import backend_of
from weft.codegen.cost_model import call_work
from weft.ir import Call
from weft.runtime.sizes import evaluate
from weft.strategy.work import count_flops
from weft.target import Target
from weft.transform.sharding.index_maps import tensors_of


class CallCosts:
    """Seconds of the calls of a program on a device of ``target``: one core, or one GPU."""

    def __init__(self, target: Target) -> None:
        self._model = backend_of(target).cost_model(target)
        self._flops: dict[Call, float] = {}

    def seconds(self, call: Call, parts: int, nbytes: float) -> float:
        """Of one of ``parts`` of the work, which reads and writes ``nbytes``."""
        if call not in self._flops:
            self._flops[call] = self._count(call)
        return self._model.work_seconds(
            self._flops[call] / parts, nbytes, call_work(call).itemsize)

    def _count(self, call: Call) -> float:
        built, work = tensors_of(call), call_work(call)
        flops = evaluate(count_flops(built[1]), {}) if built is not None else 0
        each = self._model.expensive_operations if work.is_expensive else 1
        return max(float(flops), float(work.elements * each))
