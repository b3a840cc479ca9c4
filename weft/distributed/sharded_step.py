"""``shard_step``: a training step cut over a mesh, whose state stays in parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.distributed.communicator import Communicator
from weft.distributed.parts import joined, part_of
from weft.distributed.plan import ShardingPlan, shard
from weft.eager.device import CPU
from weft.eager.grad_mode import no_grad
from weft.eager.tracing.jit import argument_array
from weft.eager.tracing.memory import array_of
from weft.eager.tracing.train_step import TrainStep
from weft.ir.module import IRModule
from weft.ir.sharding import Mesh, Sharding
from weft.support.errors import InvalidInputError
from weft.target import Target


def shard_step(step: TrainStep, mesh: Mesh, shardings: Mapping[str, Sharding] | None = None, *,
               example_inputs: Sequence[Any], communicator: Communicator | None = None,
               target: Target | str = "cpu", **options: Any) -> ShardedStep:
    """Cut a ``weft.train_step`` over the devices of ``mesh``: gradients and update are one program.

    ``shardings`` names arguments, weights and state as the step's artifact does (``x``,
    ``0.weight``, ``optimizer.exp_avg.0.weight``); the state of an optimiser is cut like its
    parameter. ``example_inputs`` are the arguments of a call, which does not run. With
    ``communicator`` this process is one rank, else it computes what all devices do. ``options``
    are those of ``weft.compile``. Raises what ``shard`` does.
    """
    program, _ = step.program_for(*example_inputs)
    if not program.settled:  # an optimiser makes its state in the first trace
        program, _ = step.program_for(*example_inputs)
    if program.device is not CPU:
        raise InvalidInputError("a cut step takes tensors in host memory",
                                where=getattr(step, "__name__", "step"), got=str(program.device),
                                help="keep model and arguments on the CPU; target= says what the "
                                     "parts are compiled for")
    module = program.without_state()
    wanted = _with_state_of_optimizers(program, module, shardings or {})
    found = shard(module, mesh, wanted, target=target).inputs
    state = {name: found[name] for name in program.state_names}
    plan = shard(module, mesh, wanted | state, target=target,
                 outputs=[*[None] * program.count, *state.values()])
    return ShardedStep(step, program, plan, communicator, options)


def _with_state_of_optimizers(program: Any, module: IRModule, shardings: Mapping[str, Sharding]
                              ) -> dict[str, Sharding]:
    """The shardings, with those of tensors that are named after a parameter and have its type."""
    types = {p.name: p.checked_type or p.annotation for p in module["main"].params}
    weights = [name for name, one in zip(program.state_names, program.states, strict=True)
               if one.cell.requires_grad]
    found = dict(shardings)
    for name in program.state_names:
        own = max((w for w in weights if name.endswith(f".{w}")), key=len, default="")
        if own in shardings and types[name] == types[own]:
            found.setdefault(name, shardings[own])
    return found


class ShardedStep:
    """A training step on whole arguments, the same on all ranks, which keeps parts of the state.

    The tensors of the model and of the optimiser have the state once ``sync`` was called.
    """

    def __init__(self, step: TrainStep, program: Any, plan: ShardingPlan,
                 communicator: Communicator | None, options: Mapping[str, Any]) -> None:
        self.plan = plan
        self._step, self._program, self._communicator = step, program, communicator
        self._run: Any = plan.compile(**options) if communicator is None \
            else plan.compile(communicator=communicator, **options)
        shardings = list(plan.inputs.values())
        count = len(shardings) - len(program.states)
        self._given, self._kept = shardings[:count], shardings[count:]
        self._state = self._cut([array_of(one.cell) for one in program.states], self._kept)

    def __call__(self, *args: Any) -> Any:
        program, given = self._step.program_for(*args)
        if program is not self._program:
            raise InvalidInputError("a cut step takes arguments of one kind",
                                    where=getattr(self._step, "__name__", "step"),
                                    got=program.reason,
                                    help="cut the step for these arguments: shard_step")
        arrays = [argument_array(node) for node in given]
        arrays += [array_of(one.cell) for one in program.read]
        found = self._run(*self._cut(arrays, self._given), *self._state)
        parts = list(found) if isinstance(found, tuple) else [found]
        count = program.count
        # Copies: the next call may write to the memory of results.
        self._state = [np.array(part) for part in parts[count:]]
        results = self._whole(parts[:count], self.plan.part.results)
        return program.finished(results, given)

    @property
    def state_bytes(self) -> int:
        """The bytes of the state that this process keeps."""
        return sum(part.nbytes for part in self._state)

    def sync(self) -> None:
        """Let the tensors have the values of the state; all ranks call it."""
        whole = self._whole(self._state, self._kept)
        with no_grad():
            for one, array in zip(self._program.states, whole, strict=True):
                one.cell.copy_(weft.tensor(array))

    def _cut(self, arrays: Sequence[Any], shardings: Sequence[Sharding]) -> list[np.ndarray]:
        whole = [np.array(array) for array in arrays]
        if self._communicator is None:
            return whole
        return [part_of(array, sharding, self.plan.mesh, self._communicator.rank)
                for array, sharding in zip(whole, shardings, strict=True)]

    def _whole(self, parts: Sequence[Any], shardings: Sequence[Sharding]) -> list[np.ndarray]:
        arrays = [np.asarray(part) for part in parts]
        if self._communicator is None:
            return arrays
        return [array if sharding.is_replicated else joined(
            list(self._communicator.all_gather(array[None])), sharding, self.plan.mesh)
            for array, sharding in zip(arrays, shardings, strict=False)]
