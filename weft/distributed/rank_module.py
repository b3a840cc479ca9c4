"""The program of one rank of a plan: compiled steps, and collectives of a communicator between."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.compiler.api import compile as compile_model
from weft.distributed.communicator import Communicator
from weft.distributed.parts import joined, padded, part_of, program_of
from weft.ir import (
    Call,
    Constant,
    Expr,
    GlobalVar,
    If,
    TensorType,
    TupleGetItem,
    TupleType,
    Var,
)
from weft.ir.sharding import Mesh
from weft.op.cut_axes import tensor_types
from weft.runtime.executable import Executable
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, OptionError
from weft.transform.sharding.blocks import Block, Branch, Compute, Repeat, Start, Step, Wait
from weft.transform.sharding.costs import call_bytes, collective_name
from weft.transform.sharding.partition import Partitioned
from weft.transform.sharding.steps import block_of

# Waits for a collective that was started, and returns its result.
_Wait: TypeAlias = Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class StepTime:
    """The seconds of a step in a call, and the bytes that this rank received for it."""

    step: Step
    seconds: float
    nbytes: float


class RankModule:
    """The module of one rank of a mesh, from its parts of the inputs to its parts of the results.

    All ranks call the module at the same time. ``cut`` takes the parts of whole inputs, ``join``
    makes whole results of the parts of all ranks. Of a plan with padding, parts are those of padded
    arrays.
    """

    def __init__(self, part: Partitioned, communicator: Communicator, **options: Any) -> None:
        mesh, self.rank = part.mesh, communicator.rank
        if communicator.size != mesh.size:
            raise OptionError("the mesh needs a rank for each of its places",
                              expected=f"{mesh.size} ranks", got=communicator.size)
        self._part, self._communicator = part, communicator
        self._block = block_of(program_of(part, self.rank))
        self.steps = list(self._block.steps)
        self._groups: dict[tuple[str, ...], _Group] = {}
        self._compiled: dict[Step, Executable] = {}
        for step in self._block.all_steps():
            if isinstance(step, Compute):
                self._compiled[step] = compile_model(step.module, **options)
            elif isinstance(step, Start):
                axes = step.call.attrs.axes  # type: ignore[attr-defined]
                self._groups.setdefault(axes, _Group(mesh, axes, communicator))
        self._last: dict[Block, dict[int, list[Expr]]] = {}

    @property
    def bytes_received(self) -> float:
        """Bytes that this rank receives in a call; see ``Partitioned.bytes_received``."""
        return self._part.bytes_received

    def cut(self, *arrays: Any) -> list[np.ndarray]:
        """The parts of this rank of whole inputs."""
        return [part_of(padded(np.asarray(a), s, self._part.mesh), s, self._part.mesh, self.rank)
                for a, s in zip(arrays, self._part.parameters, strict=True)]

    def join(self, *parts: np.ndarray) -> list[np.ndarray]:
        """The whole results, on every rank, of the parts of all ranks."""
        found = []
        for array, sharding in zip(parts, self._part.results, strict=True):
            each = self._communicator.all_gather(np.asarray(array)[None])
            found.append(joined(list(each), sharding, self._part.mesh))
        return [x[tuple(map(slice, t.concrete_shape))]
                for x, t in zip(found, tensor_types(self._part.result_type), strict=True)]

    def __call__(self, *parts: Any) -> Any:
        """The parts of the results; one alone is an array, several are a tuple."""
        return self._run(parts, [])

    def profile(self, *parts: Any) -> list[StepTime]:
        """The time of each step of a call, and the bytes received in it."""
        times: list[StepTime] = []
        self._run(parts, times)
        return times

    def _run(self, parts: Sequence[Any], times: list[StepTime]) -> Any:
        params = self._block.params
        if len(parts) != len(params):
            raise InvalidInputError("another number of inputs", expected=f"{len(params)} parts",
                                    got=len(parts))
        given = [_checked(p, x) for p, x in zip(params, parts, strict=True)]
        results = tuple(self._results(self._block, given, times))
        return results if len(results) > 1 else results[0]

    def _results(self, block: Block, given: Sequence[Any], times: list[StepTime]) -> list[Any]:
        """The results of a block, after all its iterations."""
        start = block
        while True:
            values: dict[Expr, Any] = dict(zip(block.params, given, strict=True))
            last = self._last.get(block)
            if last is None:
                last = self._last[block] = _last_uses(block)
            for number, step in enumerate(block.steps):
                begin = time.perf_counter()
                nbytes = self._step(step, values, times)
                times.append(StepTime(step, time.perf_counter() - begin, nbytes))
                for x in last.get(number, ()):
                    del values[x]
            if block.chosen is not None:
                cond, yes, no = block.chosen
                chosen = yes if _value(cond, values) else no
                block, given = chosen, [_value(x, values) for x in chosen.inputs]
                continue
            given = [_value(x, values) for x in block.ends]
            if not block.repeats:
                return given
            block = start

    def _step(self, step: Step, values: dict[Expr, Any], times: list[StepTime]) -> float:
        """Do a step; the bytes that it receives."""
        match step:
            case Compute():
                found = self._compiled[step](*(_value(x, values) for x in step.inputs))
                each = found if isinstance(found, tuple) else (found,)
                values |= zip(step.outputs, map(np.asarray, each), strict=True)
            case Start():
                values[step.call] = self._begin(step.call, values)
                return call_bytes(step.call, self._part.mesh)
            case Wait():
                values[step.call] = values[step.call]()
            case Branch():
                block = step.yes if _value(step.call.cond, values) else step.no
                self._keep(step.call, block, values, times)
            case Repeat():
                self._keep(step.call, step.body, values, times)
        return 0.0

    def _keep(self, call: Call | If, block: Block, values: dict[Expr, Any],
              times: list[StepTime]) -> None:
        found = self._results(block, [_value(x, values) for x in block.inputs], times)
        values[call] = found if isinstance(call.checked_type, TupleType) else found[0]

    def _begin(self, call: Call, values: Mapping[Expr, Any]) -> _Wait:
        name, attrs = collective_name(call), call.attrs
        operand = np.array(_value(call.args[0], values), order="C")  # reductions are in place
        group = self._groups[attrs.axes]  # type: ignore[attr-defined]
        return group.begin(str(name), operand, attrs)


class _Group:
    """The ranks that differ from this one along axes; they may be in another order than parts."""

    def __init__(self, mesh: Mesh, axes: tuple[str, ...], communicator: Communicator) -> None:
        members = mesh.group(communicator.rank, axes)
        self._ranks = communicator if len(members) == communicator.size \
            else communicator.split(min(members))
        ranks = sorted(members)
        self._rank_of = [ranks.index(m) for m in members]  # of each part
        self._part_of = [members.index(r) for r in ranks]  # of each rank

    def begin(self, name: str, x: np.ndarray, attrs: Any) -> _Wait:
        """Start a collective on an array that may be overwritten; the call that waits for it."""
        return getattr(self, f"_{name}")(x, attrs)  # type: ignore[no-any-return]

    def _all_reduce(self, x: np.ndarray, attrs: Any) -> _Wait:
        return self._ranks.start_all_reduce(x, attrs.reduction).wait

    def _all_gather(self, x: np.ndarray, attrs: Any) -> _Wait:
        pending = self._ranks.start_all_gather(x, attrs.dim)
        return lambda: _reordered(pending.wait(), attrs.dim, self._rank_of)

    def _reduce_scatter(self, x: np.ndarray, attrs: Any) -> _Wait:
        sent = _reordered(x, attrs.dim, self._part_of)
        return self._ranks.start_reduce_scatter(sent, "sum", attrs.dim).wait

    def _all_to_all(self, x: np.ndarray, attrs: Any) -> _Wait:
        sent = _reordered(x, attrs.split, self._part_of)
        pending = self._ranks.start_all_to_all(sent, attrs.split, attrs.join)
        return lambda: _reordered(pending.wait(), attrs.join, self._rank_of)

    def _broadcast(self, x: np.ndarray, _: Any) -> _Wait:
        return self._ranks.start_broadcast(x, self._rank_of[0]).wait

    def _permute(self, x: np.ndarray, attrs: Any) -> _Wait:
        size, shift = attrs.size, attrs.shift
        pairs = [(self._rank_of[n], self._rank_of[(n + shift) % size]) for n in range(size)
                 if attrs.wraps or 0 <= n + shift < size]
        pending = self._ranks.start_permute(x, pairs)
        source = self._part_of[self._ranks.rank] - shift
        if attrs.wraps or 0 <= source < size:
            return pending.wait
        return lambda: np.full_like(pending.wait(), attrs.fill)


def _reordered(x: np.ndarray, axis: int, order: list[int]) -> np.ndarray:
    """The blocks of an array along an axis in another order."""
    if order == sorted(order):
        return x
    blocks = np.split(x, len(order), axis)
    return np.concatenate([blocks[n] for n in order], axis)


def _last_uses(block: Block) -> dict[int, list[Expr]]:
    """The tensors of a block that no step after one of that number reads."""
    last: dict[Expr, int] = {}
    for number, step in enumerate(block.steps):
        match step:
            case Compute():
                used: Sequence[Expr] = (*step.inputs, *step.outputs)
            case Branch():
                used = (step.call.cond, *step.yes.inputs, *step.no.inputs, step.call)
            case Repeat():
                used = (*step.body.inputs, step.call)
            case _:
                used = (step.call.args[0], step.call)
        last |= dict.fromkeys(map(_holder, used), number)
    after = block.chosen
    ends = block.ends if after is None else (
        after[0], *after[1].inputs, *after[2].inputs)
    kept = {_holder(x) for x in ends}
    found: dict[int, list[Expr]] = {}
    for x, number in last.items():
        if x not in kept and not isinstance(x, (Constant, Var)):
            found.setdefault(number, []).append(x)
    return found


def _holder(x: Expr) -> Expr:
    """The branch or loop whose list of results has the tensor, or the tensor itself."""
    if isinstance(x, TupleGetItem) and (isinstance(x.tuple_value, If) or (
            isinstance(x.tuple_value, Call) and isinstance(x.tuple_value.op, GlobalVar))):
        return x.tuple_value
    return x


def _value(x: Expr, values: Mapping[Expr, Any]) -> Any:
    if isinstance(x, Constant):
        return x.data
    if x in values:
        return values[x]
    assert isinstance(x, TupleGetItem)
    return values[x.tuple_value][x.index]


def _checked(param: Var, given: Any) -> np.ndarray:
    array, type_ = np.asarray(given), param.checked_type
    assert isinstance(type_, TensorType)
    if array.shape != type_.concrete_shape or array.dtype != type_.dtype.numpy:
        raise InvalidInputError(f"a rank takes its part of {param.name!r}", expected=type_,
                                got=f"{array.dtype} {array.shape}",
                                help="cut whole inputs: module(*module.cut(*arrays))")
    return array
