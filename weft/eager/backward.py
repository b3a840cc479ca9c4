"""Reverse mode over the recorded graph: gradients are recorded calls, like everything else.

A node through which gradients flow refers to its operands, so the graph is what ``backward`` walks,
from the results to the leaves. The gradient of each node is a copy of its template. Nothing runs
here: forward pass, gradients and the update of parameters become one program when a value is looked
at.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ReferenceType

from weft.eager.cell import MODE, Cell, bind, node_of
from weft.eager.complex_pairs import as_complex, as_pair
from weft.eager.evaluate import AUTO_CUT, evaluate
from weft.eager.loop_gradient import reverse_of
from weft.eager.node import (
    ALIAS,
    CALL,
    CUSTOM,
    FIELD,
    FREED,
    LOOP,
    PACK,
    PLACEHOLDER,
    RECORDED,
    TRANSFER,
    Node,
    Signature,
    Spec,
    call_signature,
    field_signature,
    is_value,
    number_node,
)
from weft.eager.placement import moved
from weft.eager.record import wrap
from weft.eager.templates import template_of, wanted_of
from weft.support.errors import InvalidInputError

# The gradient that arrives at a node: a node, or one per field of a tuple.
Arriving = Any


def backward(outputs: Sequence[Cell], gradients: Sequence[Any], *, retain_graph: bool,
             create_graph: bool) -> None:
    """Accumulate the gradients of ``outputs`` in the ``grad`` of the leaves."""
    sweep = Sweep(create_graph=create_graph)
    sweep.start(outputs, gradients)
    outer, MODE.sweep = MODE.sweep, sweep
    try:
        leaves = sweep.run(retain_graph=retain_graph or create_graph)
    finally:
        MODE.sweep = outer
    for leaf, gradient in leaves:
        _accumulate(leaf, gradient, create_graph=create_graph)
    for action in sweep.at_end:
        action()


def gradients_of(outputs: Sequence[Cell], inputs: Sequence[Cell], gradients: Sequence[Any], *,
                 retain_graph: bool, create_graph: bool) -> list[Node | None]:
    """The gradients of ``outputs`` by ``inputs``; ``None`` where nothing depends on the input."""
    sweep = Sweep(create_graph=create_graph)
    wanted = [node_of(cell) for cell in inputs]
    for cell, node in zip(inputs, wanted, strict=True):
        if node.grad is None:
            raise InvalidInputError("an input of grad does not require a gradient",
                                    got=repr(type(cell).__name__), help="call requires_grad_()")
    sweep.start(outputs, gradients)
    found = dict(sweep.run(retain_graph=retain_graph or create_graph, inner=wanted))
    return [found.get(cell) for cell in inputs] if not sweep.inner else [
        sweep.inner.get(node) for node in wanted]


def _accumulate(leaf: Cell, gradient: Node, *, create_graph: bool) -> None:
    if MODE.trace is not None:
        MODE.trace.grad(leaf, is_read=True)
    if leaf._grad is None:  # noqa: SLF001 - cells are of this package
        leaf._grad = wrap(gradient)  # noqa: SLF001
        return
    total = _sum(node_of(leaf._grad), gradient, create_graph=create_graph)  # noqa: SLF001
    if create_graph:
        leaf._grad = wrap(total)  # noqa: SLF001
    else:
        bind(leaf._grad, total)  # noqa: SLF001


class Sweep:
    """One pass from results to leaves."""

    def __init__(self, *, create_graph: bool, cuts: bool = True) -> None:
        self.create_graph = create_graph
        self.cuts = cuts  # whether gradients may be evaluated meanwhile
        self.arriving: dict[Node, Arriving] = {}
        self.inner: dict[Node, Node] = {}
        self.roots: list[Node] = []
        # What hooks of leaves ask for: to evaluate what is recorded and then do something, and
        # to do something when all gradients are accumulated.
        self.when_evaluated: Callable[[], None] | None = None
        self.at_end: list[Callable[[], None]] = []

    def start(self, outputs: Sequence[Cell], gradients: Sequence[Any]) -> None:
        """Put the gradients that arrive at the results."""
        for cell, given in zip(outputs, gradients, strict=True):
            node = node_of(cell)
            if node.grad is None:
                raise InvalidInputError(
                    "backward of a tensor that does not require a gradient",
                    where=node.span, expected="a tensor computed from one with requires_grad=True")
            self.add(node, _seed(node.sig.out, given))
            self.roots.append(node)

    def add(self, node: Node, gradient: Arriving) -> None:
        if gradient.__class__ is Node and gradient.sig.out.device is not node.sig.out.device:
            gradient = moved(gradient, node.sig.out.device)
        arriving = self.arriving
        if node in arriving:
            gradient = _sum(arriving[node], gradient, create_graph=self.create_graph)
        arriving[node] = gradient

    def add_field(self, whole: Node, index: int, gradient: Node) -> None:
        fields: list[Node | None] | None = self.arriving.get(whole)
        if fields is None:
            assert whole.sig.out.fields is not None
            fields = [None] * len(whole.sig.out.fields)
            self.arriving[whole] = fields
        before = fields[index]
        fields[index] = gradient if before is None else _sum(before, gradient,
                                                             create_graph=self.create_graph)

    def run(self, *, retain_graph: bool, inner: Sequence[Node] = ()) -> list[tuple[Cell, Node]]:
        """The leaves with their gradients, in the order in which the graph recorded them."""
        order = _recorded(self.roots)
        leaves: list[tuple[Cell, Node]] = []
        wanted = set(inner)
        recorded = 0
        for node in order:
            gradient = self.arriving.pop(node, None)
            if gradient is None:
                continue
            if node.extra is not None and node.sig.kind != CUSTOM:
                gradient = _hooked(node.extra, gradient)
            if node in wanted:
                self.inner[node] = gradient
            if node.grad.__class__ is ReferenceType:  # a leaf
                cell = node.grad()
                if cell is not None:
                    leaves.append((cell, _hooked(cell._hooks, gradient)))  # noqa: SLF001
                if self.when_evaluated is not None:
                    action, self.when_evaluated = self.when_evaluated, None
                    self._evaluate(leaves, *self.roots)
                    recorded = 0
                    action()
                continue
            recorded += self._through(node, gradient)
            if recorded > AUTO_CUT and self.cuts and MODE.trace is None:
                self._evaluate(leaves)
                recorded = 0
        if not retain_graph:
            _free(order)
        leaves.reverse()
        return leaves

    def _evaluate(self, leaves: list[tuple[Cell, Node]], *others: Node) -> None:
        """Cut the gradients recorded so far, which bounds the size of programs."""
        found = [g for g in self.arriving.values() if isinstance(g, Node)]
        found += [g for gs in self.arriving.values() if isinstance(gs, list) for g in gs if g]
        found += [gradient for _, gradient in leaves]
        found += [*self.inner.values(), *others]
        pending = [node for node in found if node.value is None]
        if pending:
            evaluate(pending)

    def _through(self, node: Node, gradient: Arriving) -> int:
        """Pass a gradient on to the operands; how many nodes that recorded."""
        kind = node.sig.kind
        if kind == CALL and node.link is None and node.grad is RECORDED:
            return self._through_call(node, gradient)
        if node.grad is FREED:
            raise InvalidInputError(
                "backward through a graph whose values were freed", where=node.span,
                help="pass retain_graph=True to the first backward")
        if kind == PLACEHOLDER:  # an argument of a traced function
            return 0
        if kind == FIELD:
            self.add_field(node.args[0], node.sig.attrs, gradient)
        elif node.link is not None:
            hub, number = node.link
            self.add_field(hub, number, gradient)
        elif kind in (ALIAS, TRANSFER):
            arg = node.args[0]
            if gradient.sig.out.dtype is not arg.sig.out.dtype:  # complex numbers, or their parts
                gradient = as_pair(gradient) if node.sig.out.dtype.is_complex \
                    else as_complex(gradient)
            self._give(arg, gradient)
        elif kind == PACK:
            for i, arg in enumerate(node.args):
                if gradient[i] is not None:
                    self._give(arg, gradient[i])
        elif kind == CUSTOM:
            return self._through_function(node, gradient)
        elif kind == LOOP:
            return self._through_loop(node, gradient)
        else:
            return self._through_call(node, gradient)
        return 1

    def _give(self, arg: Node, gradient: Arriving) -> None:
        if arg.grad is not None:
            self.add(arg, gradient)

    def _through_call(self, node: Node, gradient: Arriving) -> int:
        sig, args, site = node.sig, node.args, node.site
        incoming, there = [gradient], _ARRIVES
        if sig.out.fields is not None:
            incoming, there = gradient, tuple([g is not None for g in gradient])
        template = template_of(sig, tuple([arg.grad is not None for arg in args]), there)
        values: list[Any] = [*args, node, *incoming]
        records = self.create_graph
        for one, operands in template.code:
            if one.__class__ is Node:
                values.append(one)
                continue
            if len(operands) == 2:
                first, second = operands
                taken: tuple[Node, ...] = (values[first], values[second])
            else:
                taken = tuple([values[i] for i in operands])
            values.append(_node(one, taken, site) if records else Node(one, taken, None, site))
        for arg, result in zip(args, template.results):  # noqa: B905 - equal by construction
            if result is not None:
                found = values[result]
                if node.check is not None:
                    _keep_check(node, found)
                if arg.sig.out.fields is None:
                    self.add(arg, found)
                else:
                    self._to_tuple(arg, found)
        return len(template.code)

    def _to_tuple(self, arg: Node, gradient: Node) -> None:
        """Add a gradient to an operand that is a tuple."""
        for i, spec in enumerate(arg.sig.out.fields or ()):
            if spec.dtype.is_floating_point:
                self.add_field(arg, i, _plain(field_signature(arg.sig.out, i), (gradient,), None))

    def _through_function(self, node: Node, gradient: Arriving) -> int:
        """The user's ``backward`` of an ``autograd.Function``."""
        given = gradient if isinstance(gradient, list) else [gradient]
        run = node.extra
        for arg, one in zip(node.args, run(given, create_graph=self.create_graph), strict=False):
            if one is not None and arg.grad is not None:
                self.add(arg, one)
        return 1

    def _through_loop(self, node: Node, gradient: list[Node | None]) -> int:
        """The gradient of a loop, which is a loop in the other direction."""
        found = gradients_through(node, gradient, records=self.create_graph)
        for arg, one in zip(node.args, found, strict=True):
            if one is not None:
                self.add(arg, one)
        return 1


def gradients_through(node: Node, arriving: Sequence[Node | None], *, records: bool = False
                      ) -> list[Node | None]:
    """The gradients of the operands of a loop from those of its results."""
    wanted, there = wanted_of(node), tuple([g is not None for g in arriving])
    found = node.sig.rules.get((wanted, there))
    if found is None:
        found = reverse_of(node, wanted, there, _gradients_inside)
        node.sig.rules[wanted, there] = found
    return found.gradients(node, arriving, records=records)


def _gradients_inside(results: Sequence[Node], arriving: Sequence[Node], inputs: Sequence[Node]
                      ) -> list[Node | None]:
    """The gradients of a graph by its parameters, as a graph that can be differentiated again."""
    sweep = Sweep(create_graph=True, cuts=False)
    for node, gradient in zip(results, arriving, strict=True):
        if node.grad is not None:
            sweep.add(node, gradient)
            sweep.roots.append(node)
    sweep.run(retain_graph=True, inner=inputs)
    return [sweep.inner.get(node) for node in inputs]


def _keep_check(node: Node, gradient: Node) -> None:
    """Let a gradient check what its call checks: the value of the call may never be looked at."""
    if gradient.sig.kind == CALL and gradient.check is None:
        gradient.check = node.check


def _recorded(roots: Sequence[Node]) -> list[Node]:
    """The nodes through which gradients flow to ``roots``, results first."""
    stack = list(roots)
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node.link is not None:
            given = node.link[:1]
        elif node.grad.__class__ is ReferenceType:  # a leaf
            continue
        else:
            given = node.args
        for arg in given:
            if arg.grad is not None and arg not in seen:
                seen.add(arg)
                stack.append(arg)
    return sorted(seen, key=_SERIAL, reverse=True)


_SERIAL = operator.attrgetter("serial")


def _free(order: Sequence[Node]) -> None:
    """Forget the graph below these nodes: their operands, if they have a value."""
    for node in order:
        if node.grad is RECORDED and node.sig.kind != PLACEHOLDER:
            node.grad = FREED
            node.link = None
            if node.sig.kind == CUSTOM or is_value(node):
                node.args = ()


def _plain(sig: Signature, args: tuple[Node, ...], site: Any) -> Node:
    return Node(sig, args, None, site)


_ARRIVES = (True,)


def _node(sig: Signature, args: tuple[Node, ...], site: Any) -> Node:
    """A gradient that is differentiable itself."""
    node = Node(sig, args, None, site)
    if any(arg.grad is not None for arg in args):
        node.grad = RECORDED
    return node


def _sum(a: Arriving, b: Arriving, *, create_graph: bool) -> Arriving:
    if isinstance(a, list):
        return [x if y is None else y if x is None else _sum(x, y, create_graph=create_graph)
                for x, y in zip(a, b, strict=True)]
    if a.sig.out.dtype.is_complex:
        return as_complex(_sum(as_pair(a), as_pair(b), create_graph=create_graph))
    record = _node if create_graph else _plain
    return record(call_signature("add", {}, None, (a, b)), (a, b), a.site)


def _seed(spec: Spec, given: Any) -> Node:
    """The gradient that arrives at a result: ones for a scalar."""
    if given is not None:
        if given.sig.out is not spec:
            raise InvalidInputError("the gradient does not fit the tensor",
                                    expected=f"{spec.shape}, {spec.dtype}",
                                    got=f"{given.sig.out.shape}, {given.sig.out.dtype}")
        return given
    if spec.dtype.is_complex:
        raise InvalidInputError("backward of a complex tensor needs a gradient",
                                got=f"{spec.shape}, {spec.dtype}", expected="a real scalar",
                                help="take the real part, or pass backward(gradient)")
    if spec.shape:
        count = 1
        for size in spec.shape:
            count *= size
        if count != 1:
            raise InvalidInputError("backward of a tensor with several elements needs a gradient",
                                    got=f"shape {spec.shape}", expected="a scalar",
                                    help="sum it first, or pass backward(gradient)")
        attrs = {"shape": spec.shape}
        one = (number_node(1.0, spec.dtype, spec.device),)
        return _plain(call_signature("full", attrs, tuple(attrs.items()), one), one, None)
    return number_node(1.0, spec.dtype, spec.device)


def _hooked(hooks: dict[int, Callable[[Any], Any]] | None, gradient: Arriving) -> Arriving:
    """The gradient after the user's hooks, each of which may replace it."""
    for hook in list((hooks or {}).values()):
        replaced = hook(wrap(gradient))
        if replaced is not None:
            gradient = node_of(replaced)
    return gradient
