"""Evaluation: the recorded graph is cut into a program, which is compiled once and then kept.

A cut takes every node that a live tensor needs and that has no value yet, in the order of
recording. Its key numbers signatures and operands, so that the same sequence of operators in the
next iteration finds the compiled program without any IR. The values of leaves are inputs of the
program. So are Python numbers that were seen to change (a learning rate); others are constants,
which compile to better code.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from weft.eager.cell import MODE, is_stale
from weft.eager.checks import ValueCheckError, finite_checks, first_failure
from weft.eager.device import IN_USE, copied, device
from weft.eager.node import ALIAS, CALL, FIELD, PACK, RECORDED, TRANSFER, Node
from weft.eager.program_cache import PROGRAMS, Cut
from weft.eager.templates import values_needed
from weft.support.errors import WeftError

# So many nodes are recorded at most before they are evaluated: it bounds the size of programs.
AUTO_CUT = 2000

_LOCK = threading.RLock()


def value_of(node: Node) -> Any:
    """The array of a node, which is evaluated if it has none."""
    if node.value is None:
        if MODE.trace is None:
            flush(node)
        else:
            MODE.trace.look(node)
            with _LOCK:
                evaluate([node])
    return node.value


def flush(*wanted: Node) -> None:
    """Evaluate ``wanted`` and everything that live tensors of this thread need.

    Raises what evaluation of ``wanted`` raises. What another tensor needs and cannot be computed is
    left out, now and in later cuts: the error comes when that tensor is looked at.
    """
    mode = MODE
    with _LOCK:
        pending, mode.pending = mode.pending, []
        done = False
        roots: list[Node] = []
        try:
            roots = _without_value(wanted)
            for ref in pending:
                cell = ref()
                if cell is not None:
                    node: Any = cell._node  # noqa: SLF001 - cells are of this package
                    if node.__class__ is Node and node.value is None and node not in wanted \
                            and (cell._view is None or not is_stale(cell)):  # noqa: SLF001
                        roots.append(node)
            if roots:
                evaluate(roots)
            done = True
        except ValueCheckError:
            done = True  # all values are set
            raise
        except WeftError:
            done = True
            first = set(wanted)
            _evaluate_each([node for node in roots if node not in first])
            if wanted:
                evaluate(_without_value(wanted))
        finally:
            if not done:  # an interrupt
                mode.pending = [*pending, *mode.pending]


def _without_value(nodes: Sequence[Any]) -> list[Node]:
    return [node for node in nodes if node.__class__ is Node and node.value is None]


def _evaluate_each(roots: Sequence[Node]) -> None:
    """Evaluate all that can be: halves of what fails, down to the nodes that fail alone."""
    stack = [list(dict.fromkeys(roots))]
    while stack:
        some = _without_value(stack.pop())
        try:
            if some:
                evaluate(some)
        except ValueCheckError:
            raise
        except WeftError:
            if len(some) > 1:
                stack += [some[len(some) // 2:], some[:len(some) // 2]]


def evaluate(roots: Sequence[Node]) -> None:
    """Give these nodes their values, and those that recorded gradients need.

    Raises ``ValueCheckError`` for the first check that does not hold, after all values are set.
    """
    if not IN_USE:
        _run(roots)
        return
    for moves, some in _stages(_order(roots)[0], roots):
        for node in moves:
            arg = node.args[0]
            node.value = copied(arg.value, arg.sig.out.device, node.sig.out.device)
            if node.grad is not RECORDED:
                node.args = ()
        by_device: dict[device, list[Node]] = {}
        for one in _without_value(some):
            by_device.setdefault(one.sig.out.device, []).append(one)
        for group in by_device.values():
            _run(group)


def _stages(order: Sequence[Node], roots: Sequence[Node]
            ) -> Iterator[tuple[Sequence[Node], Sequence[Node]]]:
    """The copies between devices of each stage, and the nodes that it then computes.

    A node is in a later stage than what it takes from another device.
    """
    stage: dict[Node, int] = {}
    moves: dict[int, list[Node]] = {}
    wanted: dict[int, list[Node]] = {}
    for node in order:
        at = 0
        for arg in node.args:
            before = stage.get(arg, 0)
            if arg.value is None and arg.sig.out.device is not node.sig.out.device:
                wanted.setdefault(before, []).append(arg)
                before += 1
            at = max(at, before)
        stage[node] = at
        if node.sig.kind == TRANSFER and node.value is None:
            moves.setdefault(at, []).append(node)
    for root in roots:
        wanted.setdefault(stage[root], []).append(root)
    for at in sorted({*moves, *wanted}):
        yield moves.get(at, ()), wanted.get(at, ())


def _run(roots: Sequence[Node]) -> None:
    """Give nodes of one device their values, by one program."""
    order, special = _order(roots)
    outputs = _outputs(roots, special)
    checks = [(n, n.check) for n in special if n.check is not None] if special else []
    if MODE.anomaly:
        checks += finite_checks(order)
    if checks:
        order, special = _order([*roots, *[check.holds for _, check in checks]])
    error = None
    if outputs:
        wanted = [*outputs, *[(check.holds, None) for _, check in checks]] if checks else outputs
        results = PROGRAMS.run(Cut(order, wanted))
        if checks:
            error = first_failure(checks, results[len(outputs):], roots[0].sig.out.device)
        for (node, index), array in zip(outputs, results):  # noqa: B905 - tests have more results
            if index is None:
                node.value = array
                if node.grad is not RECORDED:
                    node.args = ()
                continue
            if node.value is None:
                node.value = (None,) * len(node.sig.out.fields or ())
            node.value = (*node.value[:index], array, *node.value[index + 1:])
            _forget_operands(node)
    for node in special:
        if node.sig.kind == ALIAS:
            node.value = node.args[0].value
        elif node.sig.kind == FIELD and node.value is None and node.args[0].value is not None:
            node.value = node.args[0].value[node.sig.attrs]
        _forget_operands(node)
    if error is not None:
        raise error


def _forget_operands(node: Node) -> None:
    """Let a node go without its operands if it has its value and ``backward`` needs none."""
    value = node.value
    if value is not None and node.grad is not RECORDED and (
            value.__class__ is not tuple or all(v is not None for v in value)):
        node.args = ()


def _order(roots: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes to compute, operands first, and among them aliases, fields and the calls with a
    gradient or a check.
    """
    stack = list(roots)
    seen: set[Node] = set()
    order, special = [], []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        kind = node.sig.kind
        if kind != CALL or node.grad is RECORDED or node.check is not None:
            if kind == FIELD:
                whole = node.args[0].value
                if whole is not None and whole[node.sig.attrs] is not None:
                    node.value = whole[node.sig.attrs]
                    continue
            special.append(node)
        order.append(node)
        for arg in node.args:
            # The value of a tuple has some of its fields at most.
            if arg.value is None or arg.value.__class__ is tuple:
                stack.append(arg)  # noqa: PERF401 - a list for each node takes longer
    if len(order) > 1:
        order.sort(key=_SERIAL)
        special.sort(key=_SERIAL)
    return order, special


_SERIAL = operator.attrgetter("serial")


def _outputs(roots: Sequence[Node], special: Sequence[Node]) -> list[tuple[Node, int | None]]:
    """The results of the program: nodes, or fields of nodes that give a tuple."""
    if not special and len(roots) == 1 and roots[0].sig.out.fields is None:
        return [(roots[0], None)]
    found: dict[tuple[Node, int | None], None] = {}
    for root in roots:
        _keep(root, None, found)
    for node in special:
        if node.grad is RECORDED:
            for needed, index in values_needed(node):
                if needed.value is None or needed.value.__class__ is tuple:
                    _keep(needed, index, found)
    return sorted(found, key=_place)


def _place(output: tuple[Node, int | None]) -> tuple[int, int]:
    node, index = output
    return node.serial, -1 if index is None else index


def _keep(node: Node, index: int | None, found: dict[tuple[Node, int | None], None]) -> None:
    """Make ``node``, or its field ``index``, a result unless it has a value."""
    stack = [(node, index)]
    while stack:
        node, index = stack.pop()
        kind, value = node.sig.kind, node.value
        if value is not None and (value.__class__ is not tuple or (
                index is not None and value[index] is not None)):
            continue
        if kind == ALIAS:
            stack.append((node.args[0], index))
        elif kind == FIELD and index is None:
            stack.append((node.args[0], node.sig.attrs))
        elif kind == PACK:
            parts = node.args if index is None else (node.args[index],)
            stack += [(part, None) for part in parts]
        elif index is None and node.sig.out.fields is not None:
            stack += [(node, i) for i in range(len(node.sig.out.fields))]
        else:
            found[node, index] = None
