"""The compiled programs of cuts, by structure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from weft.eager.device import CPU, Placed, compiled
from weft.eager.node import NUMBER, Node, call_ir
from weft.ir.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var
from weft.ir.module import IRModule
from weft.support.dataclass import dataclass

# A structure whose numbers changed so often takes all of them as inputs.
_SPECIALISATIONS = 3


@dataclass(frozen=True)
class CacheInfo:
    """What the programs of recorded tensors did: cuts that found their program, that compiled one,
    programs kept, and how many are kept at most.
    """

    hits: int
    misses: int
    size: int
    limit: int


class Cut:
    """Nodes of one device to compute, operands first; the results are nodes, or fields of nodes."""

    __slots__ = ("device", "key", "leaves", "numbers", "order", "outputs")

    def __init__(self, order: Sequence[Node], outputs: Sequence[tuple[Node, int | None]]) -> None:
        self.order = order
        self.outputs = outputs
        position: dict[Node, int] = {}
        key: list[int] = []
        leaves: list[Node] = []
        numbers: list[Node] = []
        add, known = key.append, position.get
        for number, node in enumerate(order, 1):
            add(node.sig.number)
            for arg in node.args:
                at = known(arg)
                if at is None:  # a leaf
                    if arg.sig.kind == NUMBER:
                        numbers.append(arg)
                        at = -2 - 2 * len(numbers)
                    else:
                        leaves.append(arg)
                        at = -1 - 2 * len(leaves)
                    position[arg] = at
                    key += (0, arg.sig.out.number)
                add(at)
            position[node] = number
        add(0)
        for node, index in outputs:
            add(position[node])
            add(-1 if index is None else index)
        self.device = outputs[0][0].sig.out.device
        if self.device is not CPU:
            add(self.device.memory.serial)
        self.key = tuple(key)
        self.leaves = leaves
        self.numbers = numbers


@dataclass
class _Structure:
    """The programs of one structure: which numbers are inputs, and a program per constants."""

    changing: list[bool]
    first: tuple[Any, ...]
    programs: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    compiled: int = 0
    last: tuple[tuple[Any, ...], _Program] | None = None  # numbers, and the program that fits


class ProgramCache:
    """Structures with their programs, the least recently used dropped first."""

    def __init__(self) -> None:
        self._structures: OrderedDict[tuple[int, ...], _Structure] = OrderedDict()
        self.hits = 0
        self.misses = 0
        self.limit = 1024

    def run(self, cut: Cut) -> Sequence[Any]:
        """The results of a cut, in the memory of its device."""
        run = self._program(cut)
        arrays = [leaf.value for leaf in cut.leaves]
        for number in run.changing:
            node = cut.numbers[number]
            arrays.append(np.asarray(node.value, node.sig.out.dtype.dtype))
        if run.execute is not None:
            return run.execute(arrays)  # type: ignore[no-any-return]
        results = run.module(*arrays)
        return results if run.is_tuple else (results,)

    def info(self) -> CacheInfo:
        return CacheInfo(self.hits, self.misses, len(self._structures), self.limit)

    def clear(self) -> None:
        """Forget all programs."""
        self._structures.clear()

    def _program(self, cut: Cut) -> _Program:
        structures = self._structures
        found = structures.get(cut.key)
        plain = tuple([n.value for n in cut.numbers]) if cut.numbers else ()
        if found is not None and found.last is not None and plain == found.last[0]:
            self.hits += 1
            structures.move_to_end(cut.key)
            return found.last[1]
        values = tuple(map(_number_key, plain))
        if found is None:
            found = _Structure([False] * len(values), values)
            structures[cut.key] = found
            if len(structures) > self.limit:
                structures.popitem(last=False)
        else:
            structures.move_to_end(cut.key)
            if values != found.first:
                self._note_changes(found, values)
        key = tuple([v for v, c in zip(values, found.changing, strict=True) if not c])
        program = found.programs.get(key)
        if program is None:
            self.misses += 1
            program = found.programs[key] = _Program(cut, tuple(found.changing))
            found.compiled += 1
        else:
            self.hits += 1
        # 0.0 and -0.0 are equal, but not the same constant.
        found.last = None if 0 in plain else (plain, program)
        return program

    @staticmethod
    def _note_changes(found: _Structure, values: tuple[Any, ...]) -> None:
        often = found.compiled >= _SPECIALISATIONS
        for i, (now, before) in enumerate(zip(values, found.first, strict=True)):
            if not found.changing[i] and (often or now != before):
                found.changing[i] = True
                found.programs.clear()
                found.last = None


def _number_key(value: Any) -> Any:
    """Equal for numbers that are the same constant: 0.0 and -0.0 differ, NaN is itself."""
    return repr(value) if value == 0 or value != value else value  # noqa: PLR0124 - NaN


class _Program:
    """A compiled cut. ``changing`` are the numbers that are inputs, ``execute`` runs a program of
    the CPU whose sizes are fixed.
    """

    __slots__ = ("changing", "execute", "is_tuple", "module")

    def __init__(self, cut: Cut, changing: tuple[bool, ...]) -> None:
        self.changing = [i for i, changes in enumerate(changing) if changes]
        module: Any = compiled(cut.device, module_of(cut, changing))
        self.module = module
        self.is_tuple = len(cut.outputs) != 1 or isinstance(module, Placed)
        is_fixed = not isinstance(module, Placed) and not module.is_dynamic
        self.execute = module.launch_for(()).execute if is_fixed else None


def module_of(cut: Cut, changing: Sequence[bool]) -> IRModule:
    """The program of a cut: its leaves and changing numbers are the parameters."""
    made: dict[Node, Expr] = {}
    params = []
    for leaf in cut.leaves:
        made[leaf] = Var(f"x{len(params)}", leaf.sig.out.type)
        params.append(made[leaf])
    for number, changes in zip(cut.numbers, changing, strict=True):
        if changes:
            made[number] = Var(f"x{len(params)}", number.sig.out.type)
            params.append(made[number])
        else:
            made[number] = Constant(np.asarray(number.value, number.sig.out.dtype.dtype))
    for node in cut.order:
        made[node] = call_ir(node, tuple([made[a] for a in node.args]))
    results = tuple([made[node] if index is None else TupleGetItem(made[node], index)
                     for node, index in cut.outputs])
    body = results[0] if len(results) == 1 else Tuple(results)
    return IRModule.from_expr(Function(tuple(params), body))  # type: ignore[arg-type]


PROGRAMS = ProgramCache()


def cache_info() -> CacheInfo:
    """How often recorded tensors found a compiled program."""
    return PROGRAMS.info()


__all__ = ["PROGRAMS", "CacheInfo", "Cut", "cache_info", "module_of"]
