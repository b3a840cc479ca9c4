"""ZeRO: ranks share the optimiser's state and the gradients (Rajbhandari et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from weft.distributed.buckets import array_of
from weft.distributed.checkpoints import chunk, own_chunk
from weft.distributed.data_parallel import DataParallel
from weft.eager.tensor import Tensor
from weft.optim.optimizer import Optimizer
from weft.support.errors import OptionError


class ZeroOptimizer:
    """An optimiser of which each rank updates a part of the parameters and sends it to the others.

    The flattened parameters are cut into equal parts. ``make(parts)`` makes the optimiser of a
    rank's chunks of parameters (``parts``), which has to be elementwise (SGD, Adam). In stage 1 a
    rank keeps only the state of its chunks, in stage 2 only their gradients, too: after
    ``backward`` these are the ``grad`` of ``parts``, and the parameters themselves have none.
    """

    is_sharded: ClassVar[bool] = True  # a checkpoint takes the state of each rank

    def __init__(self, model: DataParallel, make: Callable[[list[Tensor]], Optimizer], *,
                 stage: int = 2) -> None:
        if stage not in (1, 2):
            raise OptionError("an unknown stage of ZeRO", got=stage, expected="1 or 2",
                              help="FullySharded cuts the parameters, too")
        self.reducer = model.reducer
        own = self.reducer.own_parts(keep_all=stage == 1)
        names = {id(p): name for name, p in model.module.named_parameters()}
        self._names = [names[id(self.reducer.parameters[part.index])] for part in own]
        self.parts: list[Tensor] = [part.tensor for part in own]
        self.optimizer = make(self.parts) if own else None

    @property
    def param_groups(self) -> Sequence[dict[str, Any]]:
        """The options of this rank's optimiser, which schedules change."""
        return self.optimizer.param_groups if self.optimizer is not None else []

    def zero_grad(self) -> None:
        """Drop the gradients of all parameters."""
        for tensor in (*self.reducer.parameters, *self.parts):
            tensor.grad = None

    def step(self) -> None:
        """Update this rank's chunks of parameters, and gather those of the others."""
        if self.optimizer is not None:
            self.reducer.refresh()
            self.optimizer.step()
        self.reducer.gather()

    def state_bytes(self) -> int:
        """Bytes of the state and the gradients that this rank keeps."""
        state = [] if self.optimizer is None else self.optimizer.state.values()
        kept = sum(v.nbytes for s in state for v in s.values() if isinstance(v, Tensor))
        return kept + sum(p.grad.nbytes for p in (*self.reducer.parameters, *self.parts)
                          if p.grad is not None)

    def state_dict(self) -> dict[str, Any]:
        """The state of this rank's chunks of parameters, by the parameters' names."""
        if self.optimizer is None:
            return {"state": {}}
        found = self.optimizer.state_dict()
        return {"state": {self._names[i]: {slot: self._chunk(i, v) for slot, v in entries.items()}
                          for i, entries in found["state"].items()},
                "options": [{k: v for k, v in group.items() if k != "params"}
                            for group in found["param_groups"]]}

    def _chunk(self, number: int, value: Any) -> Any:
        """A slot of the state as a part of the parameter's; a count of steps as it is."""
        if not isinstance(value, Tensor) or value.ndim == 0:
            return value
        part = self.reducer.owned[number]
        return chunk(array_of(value), part.where.start,
                     tuple(self.reducer.parameters[part.index].shape))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take this rank's part of the state of all ranks, whose number may have been another."""
        if self.optimizer is None:
            return
        own = {i: {slot: own_chunk(v, part.where) for slot, v in state["state"][name].items()}
               for i, (name, part) in enumerate(zip(self._names, self.reducer.owned, strict=True))
               if name in state["state"]}
        groups = [{**group, "params": list(range(len(self._names)))}
                  for group in state["options"]]
        self.optimizer.load_state_dict({"state": own, "param_groups": groups})
