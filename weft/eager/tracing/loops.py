"""``weft.while_loop`` and ``weft.scan``: loops over tensors, which a trace keeps as loops.

Outside of a traced function they are loops of Python over recorded operators. In a trace the body
runs once, on placeholders, and its graph becomes the body of a loop of the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from weft.eager.cell import MODE, Cell, node_of, spec_of_cell
from weft.eager.functions.shape import reshape, stack
from weft.eager.loop import Loop, copied_graph, loop_signature, placeholder
from weft.eager.node import Node, Spec, is_value, next_serial, spec_of, user_span, value_node
from weft.eager.record import as_node, field, made, wrap
from weft.eager.tracing.pytree import LEAF, Structure, flatten, names_of, unflatten
from weft.eager.tracing.trace import Trace
from weft.support.errors import InvalidInputError

_UNROLL = "write the steps out: weft.scan(.., unroll=True)"


def while_loop(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """The state after ``while cond_fn(state): state = body_fn(state)``, which starts as ``init``.

    The state is nested containers of tensors, arrays and numbers. As in JAX, both functions take it
    as one argument; those of several parameters take the items of a tuple, as in torch.
    ``body_fn`` returns a state of the same structure, shapes and dtypes. In a traced function both
    run once, and the program has the loop. The number of steps is unknown there, so ``backward``
    inside of ``weft.train_step`` refuses the loop; ``weft.scan`` has a gradient everywhere. Raises
    ``InvalidInputError`` if the state changes its type.
    """
    state = _State(init, "init", "body_fn")
    goes_on, step = _spread(cond_fn, init), _spread(body_fn, init)
    if MODE.trace is None:
        values = state.tensors()
        while _condition(goes_on(state.of(values))):
            values = [wrap(n) for n in state.following(step(state.of(values)))]
        return state.of(values)
    with Body() as inside:
        values = inside.parameters(state.specs)
        going = node_of(_condition(goes_on(state.of(values))))
        results = state.following(step(state.of(values)))
    results, inner, outer = inside.closed([*results, going], state.nodes)
    loop = Loop(inner, tuple(results[:-1]), len(values), going=results[-1])
    return state.of(_emitted(loop, outer, len(values)))


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any = None, *,
         length: int | None = None, reverse: bool = False, unroll: bool = False
         ) -> tuple[Any, Any]:
    """``f(carry, x) -> (carry, y)`` for each slice ``x`` of ``xs`` along axis 0, as in JAX.

    Returns the last carry, which starts as ``init``, and the ``y``s stacked along a new axis 0.
    Carry, ``xs`` and ``y`` are nested containers of tensors; ``None`` for ``xs``, with ``length``,
    and for ``y`` is allowed. ``reverse`` begins with the last slice. In a traced function ``f``
    runs once, and the program has the loop, whose gradient is a loop too; with ``unroll`` the
    program has the steps one after the other. Indices that ``f`` uses are not checked in a loop of
    a program. Raises ``InvalidInputError`` if the carry changes its type, and for no steps.
    """
    state = _State(init, "init", "f")
    slices, x_structure = ([], None) if xs is None else flatten(xs)
    given = [_node(leaf) for leaf in slices]
    steps = _steps(given, length)

    def step(values: Sequence[Any], parts: Sequence[Any]) -> tuple[list[Node], list[Node], Any]:
        found = f(state.of(values), _unflatten(x_structure, parts))
        if not isinstance(found, tuple) or len(found) != 2:
            raise InvalidInputError("the function of scan does not return a pair",
                                    where=user_span(), expected="(carry, y)",
                                    got=type(found).__name__)
        ys, structure = ([], None) if found[1] is None else flatten(found[1])
        return state.following(found[0]), [_node(y) for y in ys], structure

    if MODE.trace is None or unroll:
        return _stepwise(step, state, [wrap(node) for node in given],
                         range(steps)[::-1] if reverse else range(steps))
    count = len(state.nodes)
    with Body() as inside:
        values = inside.parameters([*state.specs, *[_slice(node.sig.out) for node in given]])
        following, ys, structure = step(values[:count], values[count:])
    results, inner, outer = inside.closed([*following, *ys], [*state.nodes, *given])
    loop = Loop(inner, tuple(results), count, len(given), steps, reverse)
    out = _emitted(loop, outer, len(results))
    return state.of(out[:count]), _unflatten(structure, out[count:])


class _State:
    """What a loop carries: nested containers, whose leaves keep their shapes and dtypes."""

    def __init__(self, init: Any, name: str, function: str) -> None:
        leaves, self._structure = flatten(init)
        self.nodes = [_node(leaf) for leaf in leaves]
        self.specs = [node.sig.out for node in self.nodes]
        self._names = names_of(init, name)
        self._function = function

    def tensors(self) -> list[Any]:
        """The first values."""
        return [wrap(node) for node in self.nodes]

    def of(self, values: Sequence[Any]) -> Any:
        """The containers with these leaves."""
        return unflatten(self._structure, list(values))

    def following(self, found: Any) -> list[Node]:
        """The leaves of the next state. ``InvalidInputError`` if one has another type."""
        leaves, structure = flatten(found)
        if structure != self._structure:
            raise InvalidInputError(
                f"{self._function} returns another structure than the loop carries",
                where=user_span(), expected=_text(self._structure), got=_text(structure))
        nodes = [_node(leaf, spec) for leaf, spec in zip(leaves, self.specs, strict=True)]
        for name, node, spec in zip(self._names, nodes, self.specs, strict=True):
            if node.sig.out is not spec:
                raise InvalidInputError(
                    f"a loop changes the type of the carried value {name}",
                    where=node.span or user_span(), expected=_type(spec), got=_type(node.sig.out),
                    help="begin with a value of the type that the body gives, or convert that")
        return nodes


class Body:
    """The trace of the body of a loop inside a traced function."""

    def __enter__(self) -> Self:
        trace = MODE.trace
        assert isinstance(trace, Trace)
        self._trace = trace
        self._first = next_serial()
        self._gradients = len(trace.gradients)
        created = [(cell, cell._node) for cell in (ref() for ref, _ in trace.created)  # noqa: SLF001
                   if cell is not None]
        captured = [(one.cell, one.cell._node) for one in trace.captured.values()]  # noqa: SLF001
        self._before = [*created, *captured]
        self._known = set(trace.captured)
        self._parameters: list[Node] = []
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            return
        trace = self._trace
        new = [(one.cell, one.placeholder) for number, one in trace.captured.items()
               if number not in self._known]
        if len(trace.gradients) != self._gradients:
            raise InvalidInputError("backward() inside the body of a loop", where=user_span(),
                                    help=f"use weft.autograd.grad, or {_UNROLL}")
        if any(cell._node is not node and cell._view is None  # noqa: SLF001
               for cell, node in (*self._before, *new)):
            raise InvalidInputError(
                "the body of a loop changes a tensor from outside", where=user_span(),
                help=f"let the loop carry it (random functions change a generator), or {_UNROLL}")

    def parameters(self, specs: Sequence[Spec]) -> list[Any]:
        """A tensor for each value that the body gets."""
        self._parameters = [self._trace.parameter(spec, differentiable=MODE.grad)
                            for spec in specs]
        return [Cell.made(node) for node in self._parameters]

    def closed(self, results: Sequence[Node], given: Sequence[Node]
               ) -> tuple[list[Node], tuple[Node, ...], list[Node]]:
        """The graph of the results with parameters of its own, and the operands for these.

        What does not depend on the parameters is an operand: it is computed once, before the loop.
        """
        outside = self._read_outside(results)
        nodes = [*self._parameters, *outside]
        inner = [placeholder(node.sig.out, flows=node.grad is not None) for node in nodes]
        copies = copied_graph(results, dict(zip(nodes, inner, strict=True)))
        return copies, tuple(inner), [*given, *outside]

    def _read_outside(self, results: Sequence[Node]) -> list[Node]:
        varying = self._varying(results)
        found: dict[Node, None] = {}
        stack, seen = list(results), set(self._parameters)
        while stack:
            node = stack.pop()
            if node in seen or is_value(node):
                continue
            seen.add(node)
            if node not in varying and node.sig.out.fields is None:
                found[node] = None
                continue
            if node.link is not None or node.extra is not None:
                raise InvalidInputError(
                    "the body of a loop has a gradient of the user's: a hook or a Function",
                    where=node.span, help=_UNROLL)
            stack += node.args
        return sorted(found, key=lambda node: node.serial)

    def _varying(self, results: Sequence[Node]) -> set[Node]:
        """The nodes that depend on the parameters, which are older."""
        stack, seen = list(results), set(self._parameters)
        order = []
        while stack:
            node = stack.pop()
            if node not in seen and node.serial > self._first:
                seen.add(node)
                order.append(node)
                stack += node.args
        varying = set(self._parameters)
        for node in sorted(order, key=lambda node: node.serial):
            if not varying.isdisjoint(node.args):
                varying.add(node)
        return varying


def _emitted(loop: Loop, args: Sequence[Node], count: int) -> list[Any]:
    """The first ``count`` results of a loop as tensors."""
    if not count:
        return []
    sig = loop_signature(loop, args, records=MODE.grad)
    node = made(sig, tuple(args))
    return [wrap(field(node, i)) for i in range(count)]


def _stepwise(step: Callable[..., Any], state: _State, given: Sequence[Any], order: range
              ) -> tuple[Any, Any]:
    """The steps one after the other."""
    values, rows = state.tensors(), []
    structure: Any = None
    for i in order:
        following, ys, structure = step(values, [x[i] for x in given])
        values = [wrap(node) for node in following]
        rows.append([wrap(node) for node in ys])
    if order.step < 0:
        rows.reverse()
    stacked = [stack(column) for column in zip(*rows, strict=True)]
    return state.of(values), _unflatten(structure, stacked)


def _unflatten(structure: Structure | None, leaves: Sequence[Any]) -> Any:
    return None if structure is None else unflatten(structure, list(leaves))


def _spread(function: Callable[..., Any], init: Any) -> Callable[[Any], Any]:
    """A function of the state, which may take the items of a tuple one by one."""
    if type(init) not in (tuple, list):
        return function
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return function
    kinds = [one.kind for one in parameters]
    positional = [one for one in parameters if one.default is one.empty and one.kind in (
        one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL in kinds or len(positional) > 1:
        return lambda state: function(*state)
    return function


def _condition(value: Any) -> Any:
    """What ``cond_fn`` returns: a boolean, or a tensor of one."""
    if not isinstance(value, Cell):
        if not isinstance(value, (bool, np.bool_)):
            raise InvalidInputError("cond_fn returns no boolean", where=user_span(),
                                    got=type(value).__name__)
        return value if MODE.trace is None else wrap(as_node(bool(value)))
    spec = spec_of_cell(value)
    if spec.shape not in ((), (1,)) or spec.dtype.name != "bool":
        raise InvalidInputError("cond_fn returns no boolean", where=user_span(),
                                expected="a tensor of one boolean", got=_type(spec))
    return reshape(value, ()) if spec.shape else value


def _steps(given: Sequence[Node], length: int | None) -> int:
    """The number of steps of ``scan``: the common size of axis 0."""
    sizes = [node.sig.out.shape[0] if node.sig.out.shape else None for node in given]
    if length is not None:
        sizes.append(int(length))
    if not sizes or None in sizes or len(set(sizes)) != 1:
        raise InvalidInputError("scan needs tensors of one size of axis 0, or length",
                                where=user_span(), expected="equal sizes of axis 0",
                                got=", ".join(map(str, sizes)) or "neither xs nor length")
    if not sizes[0]:
        raise InvalidInputError("scan over no steps: the types of the results are unknown",
                                where=user_span(), expected="one step at least", got="0")
    return sizes[0]


def _node(value: Any, like: Spec | None = None) -> Node:
    """The node of a tensor; a number, which has the dtype of ``like``, and an array become one."""
    is_number = isinstance(value, (bool, int, float))
    node = as_node(value, like.dtype if is_number and like is not None else None)
    if isinstance(value, Cell):
        return node
    dtype = node.sig.out.dtype
    return value_node(np.asarray(node.value, dtype.numpy), dtype)


def _slice(spec: Spec) -> Spec:
    return spec_of(spec.shape[1:], spec.dtype, spec.device)


def _type(spec: Spec) -> str:
    return f"{spec.dtype} of shape {spec.shape}"


def _text(structure: Structure) -> str:
    """A structure, for people."""
    if structure == LEAF:
        return "a tensor"
    kind, names, parts = structure
    labels = [f"{name}: " for name in names] if isinstance(names, tuple) else [""] * len(parts)
    inner = ", ".join(label + _text(part) for label, part in zip(labels, parts, strict=True))
    return f"{kind.__name__}({inner})"
