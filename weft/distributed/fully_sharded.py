"""Modules whose parameters are sharded over the ranks, and whole only while they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from weft.autograd import Function, enable_grad, grad
from weft.distributed.buckets import array_of, broadcast_values
from weft.distributed.checkpoints import chunk
from weft.distributed.communicator import Communicator
from weft.distributed.process import communicator
from weft.eager.cell import MODE
from weft.eager.tensor import Tensor
from weft.nn.modules.module import Module
from weft.nn.parameter import Parameter
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class _Unit(Function):
    """A unit: computed again in the backward pass, whose parameters were given back meanwhile."""

    @staticmethod
    def forward(ctx: Any, _shard: Tensor, unit: FullySharded, *args: Any) -> Tensor:
        ctx.unit, ctx.args = unit, args
        unit.gather()
        try:
            result = unit.whole(*args)
            if not isinstance(result, Tensor):
                raise InvalidInputError("a fully sharded module returns one tensor",
                                        got=type(result).__name__)
            array_of(result)
        finally:
            unit.release()
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        unit, (gradient,) = ctx.unit, grads
        unit.gather()
        try:
            with enable_grad():
                args = [a.detach().requires_grad_() if _flows(a) else a for a in ctx.args]
                wanted = [*unit.tensors, *[a for a in args if _flows(a)]]
                found = list(grad(unit.whole(*args), wanted, gradient, allow_unused=True))
            arrays = [None if g is None else array_of(g) for g in found]
        finally:
            unit.release()
        count = len(unit.tensors)
        others = iter(found[count:])
        return (unit.scattered(arrays[:count]), None,
                *[next(others) if _flows(a) else None for a in ctx.args])


def _flows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


class FullySharded(Module):
    """A module of which each rank keeps one part of all parameters, as one flat parameter.

    The whole parameters are gathered for a forward or backward pass and released after it; in
    between, activations inside of the module are not kept but computed again. Wrap each layer of a
    model, and give ``model.parameters()`` to an elementwise optimiser (SGD, Adam). Random layers
    (dropout) inside draw anew in the backward pass: put them outside.
    """

    def __init__(self, module: Module, group: Communicator | None = None) -> None:
        super().__init__()
        self.group = communicator() if group is None else group
        object.__setattr__(self, "whole", module)  # its parameters are not those of this module
        named = dict(module.named_parameters())
        kinds = {p.dtype for p in named.values()}
        if len(kinds) != 1 or list(module.buffers()):
            raise InvalidInputError(
                "a module that cannot be fully sharded", got=type(module).__name__,
                expected="parameters of one dtype, and no buffers")
        broadcast_values(list(named.values()), self.group)
        self.names = list(named)
        self.tensors = list(named.values())
        self.shapes = [tuple(p.shape) for p in self.tensors]
        flat = np.concatenate([array_of(p).reshape(-1) for p in self.tensors])
        self.size = flat.size
        self.length = -(-flat.size // self.group.size)
        self.shard = Parameter(self.own(flat))
        self.release()

    whole: Module

    def own(self, flat: np.ndarray) -> np.ndarray:
        """The part of this rank of all parameters as one array."""
        padded = np.zeros(self.length * self.group.size, flat.dtype)
        padded[:flat.size] = flat
        return np.array(padded.reshape(self.group.size, self.length)[self.group.rank])

    def ranges(self) -> Iterator[tuple[str, tuple[int, ...], int, int]]:
        """Each parameter's name and shape, and where it is in the flat array."""
        at = 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            size = int(np.prod(shape))
            yield name, shape, at, at + size
            at += size

    def forward(self, *args: Any) -> Tensor:
        if MODE.trace is not None:
            raise InvalidInputError("a fully sharded module inside of a compiled step",
                                    help="call it without train_step: each unit is a program")
        return _Unit.apply(self.shard, self, *args)  # type: ignore[no-any-return]

    def gather(self) -> None:
        """Gather the whole parameters from all ranks."""
        flat = self.group.all_gather(array_of(self.shard))
        for parameter, (_, shape, a, b) in zip(self.tensors, self.ranges(), strict=True):
            parameter.data = Tensor(flat[a:b].reshape(shape)).to(self.shard.device)

    def release(self) -> None:
        """Free the whole parameters."""
        for parameter in self.tensors:
            parameter.data = Tensor(np.zeros(0, self.shard.dtype.numpy))

    def scattered(self, gradients: list[np.ndarray | None]) -> Tensor:
        """Average the gradients over the ranks; the part of this rank."""
        flat = np.zeros(self.length * self.group.size, self.shard.dtype.numpy)
        for gradient, (_, _, a, b) in zip(gradients, self.ranges(), strict=True):
            if gradient is not None:
                flat[a:b] = gradient.reshape(-1)
        mean = self.group.reduce_scatter(flat) / np.asarray(self.group.size, flat.dtype)
        return Tensor(mean).to(self.shard.device)

    def extra_repr(self) -> str:
        return f"{type(self.whole).__name__}, {self.length} of {self.size} elements"


class FullyShardedState:
    """The state of a model with fully sharded modules, and of its optimiser, for checkpoints.

    Its parameters have the names that they have without sharding, so that another number of ranks,
    or one rank alone, goes on from it.
    """

    is_sharded: ClassVar[bool] = True

    def __init__(self, model: Module, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._units = {id(unit.shard): (f"{path}.".lstrip("."), unit)
                       for path, unit in model.named_modules() if isinstance(unit, FullySharded)}
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._order = [p for group in optimizer.param_groups for p in group["params"]]

    def state_dict(self) -> dict[str, Any]:
        """The parts of this rank: of the parameters, and of the optimiser's tensors."""
        found = self._optimizer.state_dict()
        model: dict[str, Any] = {}
        state: dict[str, Any] = {}
        for i, p in enumerate(self._order):
            model |= self._cut(p, array_of(p))
            for slot, value in found["state"].get(i, {}).items():
                array = array_of(value) if isinstance(value, Tensor) else np.asarray(value)
                state.setdefault(slot, {}).update(self._cut(p, array))
        options = [{k: v for k, v in g.items() if k != "params"} for g in found["param_groups"]]
        return {"model": model, "state": state, "options": options}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take the parts of this rank."""
        own: dict[int, dict[str, Any]] = {}
        for i, p in enumerate(self._order):
            p.data = Tensor(self._own(p, state["model"])).to(p.device)
            own[i] = {slot: self._own(p, values) for slot, values in state["state"].items()}
        groups, at = [], 0
        for group, options in zip(self._optimizer.param_groups, state["options"], strict=True):
            groups.append({**options, "params": list(range(at, at + len(group["params"])))})
            at += len(group["params"])
        self._optimizer.load_state_dict({"state": own, "param_groups": groups})

    def _cut(self, parameter: Tensor, array: np.ndarray) -> dict[str, Any]:
        if id(parameter) not in self._units:
            return {self._names[id(parameter)]: array}
        path, unit = self._units[id(parameter)]
        if array.ndim == 0:  # a count of steps
            return {path + name: array for name in unit.names}
        first = unit.group.rank * unit.length
        return {path + name: chunk(array[max(a - first, 0):max(b - first, 0)],
                                    max(first - a, 0), shape)
                for name, shape, a, b in unit.ranges() if a < first + unit.length and b > first}

    def _own(self, parameter: Tensor, values: Mapping[str, Any]) -> np.ndarray:
        if id(parameter) not in self._units:
            return np.asarray(values[self._names[id(parameter)]])
        path, unit = self._units[id(parameter)]
        found = [np.asarray(values[path + name]) for name in unit.names]
        if found[0].ndim == 0 and unit.shapes[0]:
            return found[0]
        return unit.own(np.concatenate([array.reshape(-1) for array in found]))
