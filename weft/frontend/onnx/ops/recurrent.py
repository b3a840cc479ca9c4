"""Converters of RNN, GRU and LSTM: unrolled over a fixed number of steps, else a loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.loops import run_loop
from weft.frontend.onnx.node import Node, Value, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import known_sizes, shapes_fit, stacked
from weft.ir import Dim, Expr, Shape
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

_ATTRIBUTES = ("activations", "activation_alpha", "activation_beta", "clip", "direction",
               "hidden_size", "layout")
_ACTIVATIONS = {"Sigmoid": op.sigmoid, "Tanh": op.tanh, "Relu": op.nn.relu}
_MAX_UNROLLED_STEPS = 1024  # each becomes about a dozen nodes
# The hidden state of a cell and, for LSTM, the cell state.
State = tuple[Expr, ...]


@dataclass(frozen=True)
class Weights:
    """Weights of one direction: input and recurrent matrices, their biases, and peepholes."""

    w: Expr
    r: Expr
    wb: Expr | None
    rb: Expr | None
    peepholes: Expr | None

    def gates(self, node: Node, x: Expr) -> Expr:
        """Compute the contribution of the input to all gates, for all steps in one matmul."""
        product = node.call(op.nn.dense, x, self.w)
        return product if self.wb is None else node.call(op.add, product, self.wb)


@dataclass(frozen=True)
class Cell:
    """A cell: ``step`` maps the input's gate contributions and the state to the next state."""

    gates: int
    activations: tuple[str, ...]
    step: Callable[[Node, Weights, Expr, State, Sequence[Callable[[Expr], Expr]]], State]


def _slice(node: Node, x: Expr, begin: int, end: int, axis: int) -> Expr:
    return node.call(op.strided_slice, x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))


def _part(node: Node, x: Expr, index: int, count: int) -> Expr:
    """Return chunk ``index`` of ``count`` equal chunks along the last axis."""
    type_ = tensor_type(x)
    size = _width(x) // count
    return _slice(node, x, index * size, (index + 1) * size, type_.ndim - 1)


def _width(x: Expr) -> int:
    """The size of the last axis, which the weights fix."""
    size = tensor_type(x).shape[-1]
    if not isinstance(size, int):
        raise UnsupportedModelError("a recurrent cell of symbolic size", where=x.span,
                                    got=str(size))
    return size


def _recurrent(node: Node, weights: Weights, h: Expr) -> Expr:
    product = node.call(op.nn.dense, h, weights.r)
    return product if weights.rb is None else node.call(op.add, product, weights.rb)


def _rnn_step(
    node: Node, weights: Weights, gates: Expr, state: State,
    functions: Sequence[Callable[[Expr], Expr]],
) -> State:
    (h,) = state
    return (functions[0](node.call(op.add, gates, _recurrent(node, weights, h))),)


def _gru_step(
    node: Node, weights: Weights, gates: Expr, state: State,
    functions: Sequence[Callable[[Expr], Expr]],
) -> State:
    """Step with gates z, r, h; ``linear_before_reset`` applies r after the recurrent matmul."""
    (h,) = state
    f, g = functions
    own = _recurrent(node, weights, h)
    z, r = (f(node.call(op.add, _part(node, gates, i, 3), _part(node, own, i, 3)))
            for i in (0, 1))
    if node.attrs.flag("linear_before_reset"):
        remembered = node.call(op.multiply, r, _part(node, own, 2, 3))
    else:
        size = _width(h)
        matrix = _slice(node, weights.r, 2 * size, 3 * size, 0)
        remembered = node.call(op.nn.dense, node.call(op.multiply, r, h), matrix)
        if weights.rb is not None:
            remembered = node.call(op.add, remembered, _part(node, weights.rb, 2, 3))
    new = g(node.call(op.add, _part(node, gates, 2, 3), remembered))
    return (node.call(op.add, new, node.call(op.multiply, z, node.call(op.subtract, h, new))),)


def _lstm_step(
    node: Node, weights: Weights, gates: Expr, state: State,
    functions: Sequence[Callable[[Expr], Expr]],
) -> State:
    """Step with gates i, o, f, c; peepholes of i and f use the old cell state, o the new one."""
    h, c = state
    f, g, out = functions
    total = node.call(op.add, gates, _recurrent(node, weights, h))
    i, o, forget, new = (_part(node, total, k, 4) for k in range(4))

    def peep(gate: Expr, memory: Expr, index: int) -> Expr:
        if weights.peepholes is None:
            return gate
        seen = node.call(op.multiply, _part(node, weights.peepholes, index, 3), memory)
        return node.call(op.add, gate, seen)

    i, forget = f(peep(i, c, 0)), f(peep(forget, c, 2))
    if node.attrs.flag("input_forget"):
        forget = node.call(op.subtract, node.scalar_like(1, i), i)
    memory = node.call(op.add, node.call(op.multiply, forget, c),
                       node.call(op.multiply, i, g(new)))
    return node.call(op.multiply, f(peep(o, memory, 1)), out(memory)), memory


_CELLS = {
    "RNN": Cell(1, ("Tanh",), _rnn_step),
    "GRU": Cell(3, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": Cell(4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
}


def _check_shapes(node: Node, cell: Cell, x: Expr, directions: int) -> None:
    """Raise ``InvalidModelError`` unless the weights fit each other and the attributes."""
    size = _width(node.input(2))
    if node.attrs.integer("hidden_size", size) != size:
        raise node.fail("hidden_size differs from the recurrent weights", expected=str(size),
                        got=str(node.attrs.integer("hidden_size", size)))
    rows = cell.gates * size
    width, batch = tensor_type(x).shape[-1], tensor_type(x).shape[1:2]
    wanted: dict[int, tuple[str, Shape]] = {
        1: ("W", (directions, rows, width)), 2: ("R", (directions, rows, size)),
        3: ("B", (directions, 2 * rows)), 4: ("sequence_lens", batch),
        7: ("P", (directions, 3 * size))}
    for index, (name, shape) in wanted.items():
        if node.has_input(index) and not shapes_fit(node.shape(index), shape):
            raise node.fail(f"the shape of {name} does not fit the node",
                            got=str(node.shape(index)),
                            expected=f"{shape}, for {directions} directions, {cell.gates} gates "
                                     f"and hidden size {size}")
    names = node.attrs.texts("activations")
    if names is not None and len(names) != directions * len(cell.activations):
        raise node.fail("wrong number of activations", got=str(len(names)),
                        expected=str(directions * len(cell.activations)))


def _functions(node: Node, cell: Cell, direction: int) -> list[Callable[[Expr], Expr]]:
    count = len(cell.activations)
    names = node.attrs.texts("activations") or ()
    chosen = names[direction * count:(direction + 1) * count] or list(cell.activations)
    if not all(n in _ACTIVATIONS for n in chosen):
        raise UnsupportedModelError(f"activations of {node.op}", where=node.span,
                                    expected=", ".join(_ACTIVATIONS), got=", ".join(chosen))
    return [lambda x, name=n: node.call(_ACTIVATIONS[name], x) for n in chosen]


def _direction_of(node: Node, value: Expr, direction: int) -> Expr:
    part = _slice(node, value, direction, direction + 1, 0)
    return node.call(op.squeeze, part, axis=(0,))


def _weights(node: Node, direction: int) -> Weights:
    w, r = (_direction_of(node, node.input(i), direction) for i in (1, 2))
    wb = rb = None
    if node.has_input(3):
        both = _direction_of(node, node.input(3), direction)
        wb, rb = _part(node, both, 0, 2), _part(node, both, 1, 2)
    has_peepholes = node.op == "LSTM" and node.has_input(7)
    peepholes = _direction_of(node, node.input(7), direction) if has_peepholes else None
    return Weights(w, r, wb, rb, peepholes)


def _initial_state(node: Node, direction: int, shape: tuple[Dim, int]) -> State:
    states = []
    for index in (5, 6) if node.op == "LSTM" else (5,):
        if node.has_input(index):
            given = node.input(index)
            if node.attrs.integer("layout", 0):
                given = node.call(op.transpose, given, axes=(1, 0, 2))
            states.append(_direction_of(node, given, direction))
        else:
            states.append(_zeros(node, shape))
    return tuple(states)


def _zeros(node: Node, shape: Sequence[Dim]) -> Expr:
    if all(isinstance(d, int) for d in shape):
        return node.constant(arrays.zeros(shape), node.dtype())  # type: ignore[call-overload]
    return node.call(op.zeros, shape=known_sizes(node, shape), dtype=node.dtype())


def _held(node: Node, step: Expr, new: State, old: State) -> State:
    """Keep the old state of sequences that end before ``step``."""
    if not node.has_input(4):
        return new
    step = node.call(op.cast, step, dtype=node.dtype(4))
    running = node.call(op.greater, node.input(4), step)
    running = node.call(op.expand_dims, running, axis=1, num_newaxis=1)
    return tuple(node.call(op.where, running, a, b) for a, b in zip(new, old, strict=True))


@dataclass(frozen=True)
class _Direction:
    """One direction of a recurrent node; ``gates`` are the input's contributions at all steps."""

    node: Node
    cell: Cell
    weights: Weights
    functions: Sequence[Callable[[Expr], Expr]]
    gates: Expr
    backward: bool

    def step(self, t: Expr, here: Expr, state: State) -> tuple[State, Expr]:
        """Return the state after step ``t``, and its output; both zero or held after the end."""
        node = self.node
        new = self.cell.step(node, self.weights, here, state, self.functions)
        blank = node.call(op.multiply, new[0], node.scalar_like(0, new[0]))
        return _held(node, t, new, state), _held(node, t, (new[0],), (blank,))[0]


def _run(
    node: Node, cell: Cell, x: Expr, direction: int, *, backward: bool
) -> tuple[Expr, State]:
    """Return the outputs of all steps in time order, stacked, and the final state."""
    steps, batch, _ = tensor_type(x).shape
    weights = _weights(node, direction)
    state = _initial_state(node, direction, (batch, _width(weights.r)))
    one = _Direction(node, cell, weights, _functions(node, cell, direction),
                     weights.gates(node, x), backward)
    unrolls = isinstance(steps, int) and steps <= _MAX_UNROLLED_STEPS
    return _unrolled(one, state, steps) if unrolls else _looped(one, state, steps)


def _unrolled(one: _Direction, state: State, steps: int) -> tuple[Expr, State]:
    node = one.node
    outputs: list[Expr] = []
    for t in reversed(range(steps)) if one.backward else range(steps):
        here = node.call(op.squeeze, _slice(node, one.gates, t, t + 1, 0), axis=(0,))
        state, output = one.step(node.constant(t, "int64"), here, state)
        outputs.append(output)
    return stacked(node, outputs[::-1] if one.backward else outputs, 0), state


def _looped(one: _Direction, state: State, steps: Dim) -> tuple[Expr, State]:
    node = one.node
    count = node.size(steps)
    last = node.call(op.subtract, count, node.constant(1, "int64"))

    def step(i: Expr, going: Expr, carried: Sequence[Expr]) -> list[Value]:
        t = node.call(op.subtract, last, i) if one.backward else i
        here = node.call(op.take, one.gates, t, axis=0, mode="clip")
        new, output = one.step(t, here, tuple(carried))
        return [going, *new, output]

    *final, outputs = map(node.tensor, run_loop(
        node, count, node.constant(True, "bool"), state, step, length=steps))
    return node.call(op.reverse, outputs, axis=0) if one.backward else outputs, tuple(final)


@converts("RNN", since=7, attributes=_ATTRIBUTES, outputs=2)
@converts("GRU", since=7, attributes=(*_ATTRIBUTES, "linear_before_reset"), outputs=2)
@converts("LSTM", since=7, attributes=(*_ATTRIBUTES, "input_forget"), outputs=3)
def recurrent(node: Node) -> Sequence[Expr]:
    """Outputs: all hidden states [steps, directions, batch, hidden], and the final states."""
    cell, x = _CELLS[node.op], node.input(0)
    if node.attrs.number("clip", 0.0):
        raise UnsupportedModelError(f"attribute 'clip' of {node.op}", where=node.span)
    by_batch = node.attrs.flag("layout")
    if node.rank() != 3:
        raise node.fail("the input has the wrong rank", expected="3", got=str(node.rank()))
    if by_batch:
        x = node.call(op.transpose, x, axes=(1, 0, 2))
    kind = node.attrs.one_of("direction", "forward", ("forward", "reverse", "bidirectional"))
    backward = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[kind]
    _check_shapes(node, cell, x, len(backward))
    runs = [_run(node, cell, x, d, backward=b) for d, b in enumerate(backward)]
    every = stacked(node, [outputs for outputs, _ in runs], 1)
    states = [stacked(node, list(parts), 0)
              for parts in zip(*(state for _, state in runs), strict=True)]
    if by_batch:
        every = node.call(op.transpose, every, axes=(2, 0, 1, 3))
        states = [node.call(op.transpose, s, axes=(1, 0, 2)) for s in states]
    return every, *states
