"""Plans of a model with symbolic sizes, one for each size that a call has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from weft.compiler.transformations.parameters import imported
from weft.distributed.plan import ShardingPlan, shard
from weft.frontend.source import ModelLike
from weft.ir import Function, IRModule, SymDim, TensorType, input_names
from weft.ir.shape import substitute_dim
from weft.ir.sharding import Mesh, Sharding
from weft.ir.size_range import name_of
from weft.support.errors import InvalidInputError, OptionError
from weft.target import Target
from weft.transform.analysis.reference import symbol_sizes

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Made(Generic[K, V]):
    """Values that are made once by key, several at a time in several threads."""

    def __init__(self) -> None:
        self._values: dict[K, V] = {}
        self._locks: dict[K, threading.Lock] = {}

    def get(self, key: K, make: Callable[[], V]) -> V:
        if key not in self._values:
            with self._locks.setdefault(key, threading.Lock()):
                if key not in self._values:
                    self._values[key] = make()
        return self._values[key]


class PlanBySize:
    """A model with symbolic sizes, cut over a mesh: ``at`` gives the plan for some sizes.

    Plans, and the modules that they compile to, are made once for each size.
    """

    def __init__(self, module: IRModule, make: Callable[[Mapping[str, Sequence[int]]],
                                                        ShardingPlan]) -> None:
        self.module = module
        self._make = make
        self._plans: _Made[tuple[tuple[int, ...], ...], ShardingPlan] = _Made()

    @property
    def main(self) -> Function:
        return self.module["main"]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names of the sizes."""
        found = {name_of(symbol): None for _, type_ in self._inputs() for dim in type_.shape
                 if isinstance(dim, SymDim) for symbol in sorted(dim.symbols())}
        return tuple(found)

    def at(self, **sizes: int) -> ShardingPlan:
        """The plan for these sizes, by name.

        Raises ``OptionError`` if a size is missing, and for one that the mesh does not divide.
        """
        if set(sizes) != set(self.symbols):
            raise OptionError("a plan needs a number for each symbolic size",
                              expected=", ".join(self.symbols), got=", ".join(sizes) or "none")
        shapes = {name: tuple(int(_sized(dim, sizes)) for dim in type_.shape)
                  for name, type_ in self._inputs()}
        return self._plans.get(tuple(shapes.values()), lambda: self._make(shapes))

    def of(self, *arrays: Any) -> ShardingPlan:
        """The plan for the sizes of these inputs."""
        given = [np.asarray(a) for a in arrays]
        if len(given) != len(self.main.params):
            raise InvalidInputError("another number of inputs", got=len(given),
                                    expected=f"{len(self.main.params)} arrays")
        return self.at(**symbol_sizes(self.main, given))

    def compile(self, devices: Sequence[str] = (), **options: Any) -> ModuleBySize:
        """A module on whole tensors of any size; the arguments are those of a plan."""
        return ModuleBySize(self, devices, options)

    def _inputs(self) -> list[tuple[str, TensorType]]:
        types = [p.checked_type for p in self.main.params]
        return [(name, t) for name, t in zip(input_names(self.module), types, strict=True)
                if isinstance(t, TensorType)]


class ModuleBySize:
    """The program of all devices for any size; each size is compiled at its first call."""

    def __init__(self, plan: PlanBySize, devices: Sequence[str], options: Mapping[str, Any]
                 ) -> None:
        self._plan, self._devices, self._options = plan, devices, options
        self._modules: _Made[ShardingPlan, Any] = _Made()

    def __call__(self, *arrays: Any) -> Any:
        return self.at(*arrays)(*arrays)

    def at(self, *arrays: Any) -> Any:
        """The module for the sizes of these inputs."""
        plan = self._plan.of(*arrays)
        return self._modules.get(plan, lambda: plan.compile(self._devices, **self._options))


def shard_by_size(model: ModelLike, mesh: Mesh, shardings: Mapping[str, Sharding] | None = None, *,
                  outputs: Sequence[Sharding | None] | None = None,
                  inputs: Mapping[str, Sequence[object]] | None = None,
                  example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
                  pad: bool = False, target: Target | str = "cpu") -> PlanBySize:
    """Cut a model with symbolic sizes, such as those of a batch; the arguments are ``shard``'s.

    A size that the mesh does not divide is refused when it comes, or padded with ``pad``.
    """
    def make(shapes: Mapping[str, Sequence[int]]) -> ShardingPlan:
        return shard(model, mesh, shardings, outputs=outputs, inputs=shapes,
                     example_inputs=example_inputs, pad=pad, target=target)

    return PlanBySize(imported(model, inputs, example_inputs), make)


def _sized(dim: Any, sizes: Mapping[str, int]) -> Any:
    if not isinstance(dim, SymDim):
        if isinstance(dim, int):
            return dim
        raise OptionError("a size that only a call knows cannot be cut", got=dim,
                          help='name the dimension: inputs={"x": ("batch", 3)}')
    return substitute_dim(dim, {s: sizes[name_of(s)] for s in dim.symbols()})
