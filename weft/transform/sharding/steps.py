"""The order in which a device runs its program: collectives begin early and are waited for late.

A device computes what the next collective needs, starts it, and goes on. Before it waits it
computes all that needs no collective under way. The order follows from the program alone, so all
devices start the same collectives in the same order.

A branch or a loop without collectives is computed like a call. One with collectives is a step that
has steps of its own, in ``Block``s; it begins when its operands are there, and ends before the next
step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
    infer_expr,
    post_order,
)
from weft.ir.visitor import children, is_call_of, replace_children
from weft.transform.analysis.scopes import Scopes
from weft.transform.sharding.blocks import Block, Branch, Compute, Repeat, Start, Step, Unit, Wait
from weft.transform.sharding.costs import is_exchange
from weft.transform.sharding.loops import callees, conditions_before

_Group: TypeAlias = "tuple[Unit, ...] | Start | Wait | Branch | Repeat"


def steps_of(program: IRModule | Function) -> list[Step]:
    """The steps of the program of one device."""
    return list(block_of(program).steps)


def block_of(program: IRModule | Function) -> Block:
    """The program of one device as a block."""
    module = program if isinstance(program, IRModule) else IRModule({"main": program})
    main = module["main"]
    return _Blocks(module).make(main.params, main.params, main.body)


class _Blocks:
    """Makes blocks. A block is a program of its own: tensors from outside are its parameters."""

    def __init__(self, module: IRModule) -> None:
        self.functions = module.functions
        self._has_exchange: dict[str, bool] = {}

    def make(self, inputs: tuple[Expr, ...], params: tuple[Var, ...], body: Expr, loop: str = ""
             ) -> Block:
        if loop and isinstance(body, If) and body in conditions_before(body, loop):
            inner = _Inner(body)
            used = [inner.read(b) for b in (body.true_branch, body.false_branch)]
            steps = self._steps((body.cond, *used[0], *used[1]))
            yes, no = (self._closed(u, b, loop) for u, b in zip(
                used, (body.true_branch, body.false_branch), strict=True))
            return Block(inputs, params, steps, chosen=(body.cond, yes, no))
        if loop and is_call_of(body, loop):
            return Block(inputs, params, self._steps(body.args), body.args, repeats=True)
        ends = tuple(_tensors(body))
        return Block(inputs, params, self._steps(ends), ends)

    def _closed(self, inputs: Sequence[Expr], body: Expr, loop: str = "") -> Block:
        params = {x: Var(f"x{n}", x.checked_type) for n, x in enumerate(inputs)}
        made: dict[Expr, Expr] = {**params}
        for node in post_order(body, enter=lambda e: e not in params):
            if node not in made:
                made[node] = _rebuilt(node, made)
        return self.make(tuple(inputs), tuple(params.values()), made[body], loop)

    def _steps(self, results: Sequence[Expr]) -> tuple[Step, ...]:
        order = _Order(Tuple(tuple(results)), self)
        return tuple(order.with_functions(list(order.run())))

    def step(self, unit: Unit, inner: _Inner) -> Branch | Repeat:
        """The step of a unit that has exchanges."""
        if isinstance(unit, If):
            return Branch(unit, *(self._closed(inner.read(b), b)
                                  for b in (unit.true_branch, unit.false_branch)))
        assert isinstance(unit.op, GlobalVar)
        function = self.functions[unit.op.name]
        return Repeat(unit, self.make(unit.args, function.params, function.body, unit.op.name))

    def exchanges(self, node: Expr) -> bool:
        """Whether devices exchange data in a node itself, or in the function that it calls."""
        if not isinstance(node, Call) or not isinstance(node.op, GlobalVar):
            return is_exchange(node)
        name = node.op.name
        if name not in self._has_exchange:
            self._has_exchange[name] = False  # a call of itself adds nothing
            self._has_exchange[name] = any(
                map(self.exchanges, post_order(self.functions[name].body)))
        return self._has_exchange[name]


class _Inner:
    """Which nodes of a program are evaluated in branches, and what these read."""

    def __init__(self, body: Expr) -> None:
        self._scopes = Scopes(body)
        self.order = self._scopes.order

    def is_outer(self, node: Expr) -> bool:
        return isinstance(node, Var) or self._scopes.scope_of[node] is self._scopes.root

    def walk(self, branch: Expr) -> Iterator[Expr]:
        """The nodes of a branch, and those outside that it reads."""
        return post_order(branch, enter=lambda e: not self._is_read(e))

    def read(self, branch: Expr) -> list[Expr]:
        """The tensors that a branch reads from outside."""
        return [n for n in self.walk(branch) if self._is_read(n)]

    def _is_read(self, node: Expr) -> bool:
        if isinstance(node, TupleGetItem) and not isinstance(node.tuple_value, Tuple):
            return self.is_outer(node.tuple_value)
        return self.is_outer(node) and not isinstance(node, (Constant, GlobalVar, Tuple))


class _Order:
    """Chooses which calls run next. Sets of calls are bits of integers."""

    def __init__(self, body: Expr, blocks: _Blocks) -> None:
        self._body, self._blocks, self._inner = body, blocks, _Inner(body)
        self._calls: list[Unit] = [n for n in self._inner.order if isinstance(n, (Call, If))
                                   and self._inner.is_outer(n)]
        number = {call: i for i, call in enumerate(self._calls)}
        self._needs: list[int] = []  # of each call: itself and all that it depends on
        for i, call in enumerate(self._calls):
            mask = 1 << i
            for other in _producers(self._read(call)):
                mask |= self._needs[number[other]]
            self._needs.append(mask)
        self._exchanges = sum(1 << i for i, c in enumerate(self._calls) if is_exchange(c))
        self._alone = sum(1 << i for i, c in enumerate(self._calls) if self._is_alone(c))
        self._done = self._started = self._arrived = 0

    def _read(self, unit: Unit) -> list[Expr]:
        """The tensors that a call or a condition needs."""
        if isinstance(unit, Call):
            return list(unit.args)
        return [unit.cond, *self._inner.read(unit.true_branch),
                *self._inner.read(unit.false_branch)]

    def _within(self, unit: Unit) -> Iterator[Expr]:
        """The nodes of a condition's branches."""
        for branch in (unit.true_branch, unit.false_branch) if isinstance(unit, If) else ():
            yield from (n for n in self._inner.walk(branch) if not self._inner.is_outer(n))

    def _is_alone(self, unit: Unit) -> bool:
        """Whether a branch or loop has exchanges, and so is a step of its own."""
        if isinstance(unit, If):
            return any(map(self._blocks.exchanges, self._within(unit)))
        return isinstance(unit.op, GlobalVar) and self._blocks.exchanges(unit)

    def run(self) -> Iterator[_Group]:
        waiting = list(_bits(self._exchanges))
        while waiting:
            chosen = min(waiting, key=self._rank)
            waiting.remove(chosen)
            before = self._needs[chosen] & ~(1 << chosen)
            yield from self._reach(before)
            self._started |= 1 << chosen
            call = self._calls[chosen]
            assert isinstance(call, Call)
            yield Start(call)
        yield from self._reach((1 << len(self._calls)) - 1)

    def _rank(self, exchange: int) -> tuple[int, int, int, int]:
        """Collectives that need no other one come first, then those that need fewer calls."""
        before = self._needs[exchange] & ~(1 << exchange)
        exchanges = before & self._exchanges
        return ((exchanges & ~self._started).bit_count(), (exchanges & ~self._arrived).bit_count(),
                (before & ~self._done & ~self._exchanges).bit_count(), exchange)

    def _reach(self, wanted: int) -> Iterator[_Group]:
        """Compute ``wanted``; first, if this needs collectives under way, all that does not."""
        under_way = wanted & self._exchanges & ~self._arrived
        if under_way:
            free = sum(1 << i for i in range(len(self._calls)) if not (
                self._needs[i] & self._exchanges & ~self._arrived))
            yield from self._compute(free)
            for i in _bits(under_way):
                self._arrived |= 1 << i
                call = self._calls[i]
                assert isinstance(call, Call)
                yield Wait(call)
        yield from self._compute(wanted)

    def _compute(self, wanted: int) -> Iterator[_Group]:
        missing = wanted & ~self._done & ~self._exchanges
        self._done |= missing
        for alone, numbers in itertools.groupby(
                _bits(missing), lambda i: bool(self._alone >> i & 1)):
            units = tuple(self._calls[i] for i in numbers)
            if alone:
                yield from (self._blocks.step(unit, self._inner) for unit in units)
            else:
                yield units

    def with_functions(self, order: Iterable[_Group]) -> list[Step]:
        """Make each group of calls a function of what earlier steps have made."""
        groups = _joined(order)
        home: dict[Expr, int] = {}
        for n, group in enumerate(groups):
            for unit in group if isinstance(group, tuple) else ():
                home |= dict.fromkeys((unit, *self._within(unit)), n)
        found: dict[int, dict[Expr, None]] = {}
        for unit in self._calls:
            for x in self._read(unit):
                _read_elsewhere(x, home.get(unit), home, found)
        _read_elsewhere(self._body, None, home, found)
        return [_compute(group, n, home, found.get(n, ()), self._blocks.functions)
                if isinstance(group, tuple) else group for n, group in enumerate(groups)]


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _producers(read: Sequence[Expr]) -> Iterator[Unit]:
    """The calls and conditions whose results are read, through tuples."""
    pending = list(read)
    while pending:
        found = pending.pop()
        if isinstance(found, (Call, If)):
            yield found
        elif isinstance(found, (Tuple, TupleGetItem)):
            pending += children(found)


def _tensors(x: Expr) -> list[Expr]:
    """The tensors of a result."""
    if isinstance(x, Tuple):
        return [t for f in x.fields for t in _tensors(f)]
    if isinstance(x.checked_type, TupleType):
        return [t for n, type_ in enumerate(x.checked_type.fields)
                for t in _tensors(TupleGetItem(x, n, checked_type=type_))]
    return [x]


def _joined(order: Iterable[_Group]) -> list[_Group]:
    """The order with neighbouring groups as one."""
    found: list[_Group] = []
    for step in order:
        if isinstance(step, tuple) and found and isinstance(found[-1], tuple):
            found[-1] += step
        else:
            found.append(step)
    return found


def _read_elsewhere(node: Expr, reader: int | None, home: Mapping[Expr, int],
                    found: dict[int, dict[Expr, None]]) -> None:
    """Note the tensors of each group that another step, or the caller, reads."""
    pending = [node]
    while pending:
        x = pending.pop()
        inner = x.tuple_value if isinstance(x, TupleGetItem) else x
        if isinstance(inner, Tuple):
            pending += [inner.fields[x.index]] if isinstance(x, TupleGetItem) else inner.fields
        elif inner in home and home[inner] != reader:
            found.setdefault(home[inner], {})[x] = None


def _compute(calls: tuple[Unit, ...], number: int, home: Mapping[Expr, int],
             outputs: Iterable[Expr], functions: Mapping[str, Function]) -> Compute:
    results = tuple(outputs)
    inputs: dict[Expr, Var] = {}
    made: dict[Expr, Expr] = {}
    pending = [(x, False) for x in reversed(results)]
    while pending:
        node, is_ready = pending.pop()
        if node in made:
            continue
        if is_ready:
            made[node] = _rebuilt(node, made)
        elif _is_given(node, number, home):
            assert node.checked_type is not None
            made[node] = inputs[node] = Var(f"x{len(inputs)}", node.checked_type)
        elif isinstance(node, (Constant, GlobalVar)):
            made[node] = node
        else:
            pending.append((node, True))
            pending += [(c, False) for c in reversed(children(node))]
    body = Tuple(tuple(made[x] for x in results))
    function = infer_expr(Function(tuple(inputs.values()), body), trust=True)
    assert isinstance(function, Function)
    return Compute(calls, tuple(inputs), results, function, _called(function, functions))


def _called(function: Function, functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions that one calls, directly or not."""
    found: dict[str, Function] = {}
    pending = callees(function.body)
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = functions[name]
            pending += callees(functions[name].body)
    return found


def _rebuilt(node: Expr, made: Mapping[Expr, Expr]) -> Expr:
    return replace_children(node, [made[c] for c in children(node)])


def _is_given(node: Expr, number: int, home: Mapping[Expr, int]) -> bool:
    """Whether a tensor comes from an earlier step."""
    if isinstance(node, Var):
        return True
    inner = node.tuple_value if isinstance(node, TupleGetItem) else node
    return isinstance(inner, (Call, If)) and home.get(inner) != number
