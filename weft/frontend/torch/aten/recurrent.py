"""Converters of recurrent networks, unrolled over the steps of a sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir import Expr, Op
from weft.support.dataclass import dataclass

# The state of a cell: the hidden state, and for LSTM also the cell state.
State = tuple[Expr, ...]


@dataclass(frozen=True)
class Weights:
    """The weights of one direction of one layer; biases may be ``None``."""

    w: Expr
    r: Expr
    wb: Expr | None
    rb: Expr | None


@dataclass(frozen=True)
class Form:
    """How the layers of a network are stacked."""

    has_biases: bool
    layers: int
    bidirectional: bool
    batch_first: bool


Step = Callable[[Node, Weights, Expr, State], State]


def _affine(node: Node, x: Expr, weight: Expr, bias: Expr | None) -> Expr:
    product = node.call(op.nn.dense, x, weight)
    return product if bias is None else node.call(op.add, product, bias)


def _parts(node: Node, x: Expr, count: int) -> list[Expr]:
    """Split ``x`` into ``count`` equal slices along the last axis."""
    axis = rank_of(x) - 1
    size = shape_in(x)[axis] // count
    return [node.slice(x, axis, i * size, (i + 1) * size) for i in range(count)]


def _lstm_step(node: Node, weights: Weights, gates: Expr, state: State) -> State:
    """One LSTM step, with gates in the order i, f, g, o."""
    h, c = state
    total = node.call(op.add, gates, _affine(node, h, weights.r, weights.rb))
    i, f, g, o = _parts(node, total, 4)
    kept = node.call(op.multiply, node.call(op.sigmoid, f), c)
    new = node.call(op.multiply, node.call(op.sigmoid, i), node.call(op.tanh, g))
    memory = node.call(op.add, kept, new)
    return node.call(op.multiply, node.call(op.sigmoid, o), node.call(op.tanh, memory)), memory


def _gru_step(node: Node, weights: Weights, gates: Expr, state: State) -> State:
    """One GRU step, with gates in the order r, z, n; r scales the recurrent product."""
    (h,) = state
    own = _parts(node, _affine(node, h, weights.r, weights.rb), 3)
    given = _parts(node, gates, 3)
    r, z = (node.call(op.sigmoid, node.call(op.add, given[k], own[k])) for k in (0, 1))
    remembered = node.call(op.multiply, r, own[2])
    new = node.call(op.tanh, node.call(op.add, given[2], remembered))
    return (node.call(op.add, new, node.call(op.multiply, z, node.call(op.subtract, h, new))),)


def _plain_step(activation: Op) -> Step:
    def step(node: Node, weights: Weights, gates: Expr, state: State) -> State:
        total = node.call(op.add, gates, _affine(node, state[0], weights.r, weights.rb))
        return (node.call(activation, total),)

    return step


@converts("lstm.input")
def lstm(node: Node, x: Expr, state: Sequence[Expr], params: Sequence[Expr], has_biases: bool,
         layers: int, dropout: float, train: bool, bidirectional: bool,
         batch_first: bool) -> tuple[Expr, ...]:
    form = Form(has_biases, layers, bidirectional, batch_first)
    return _network(node, _lstm_step, x, tuple(state), params, form, dropout if train else 0.0)


@converts("gru.input")
def gru(node: Node, x: Expr, state: Expr, params: Sequence[Expr], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> tuple[Expr, ...]:
    form = Form(has_biases, layers, bidirectional, batch_first)
    return _network(node, _gru_step, x, (state,), params, form, dropout if train else 0.0)


@converts("rnn_tanh.input", "rnn_relu.input")
def rnn(node: Node, x: Expr, state: Expr, params: Sequence[Expr], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool) -> tuple[Expr, ...]:
    form = Form(has_biases, layers, bidirectional, batch_first)
    step = _plain_step(op.tanh if "tanh" in node.op else op.nn.relu)
    return _network(node, step, x, (state,), params, form, dropout if train else 0.0)


def _network(node: Node, step: Step, x: Expr, initial: State, params: Sequence[Expr], form: Form,
             dropout: float) -> tuple[Expr, ...]:
    """The outputs of all steps, and the final states of all layers and directions.

    With ``dropout`` above 0 elements between layers are dropped by a key.
    """
    directions = 2 if form.bidirectional else 1
    per_direction = 4 if form.has_biases else 2
    if len(params) != form.layers * directions * per_direction:
        raise node.unsupported("projections of the hidden state")
    x = node.transpose(x, (1, 0, 2)) if form.batch_first else x
    last: list[State] = []
    for layer in range(form.layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            first = number * per_direction
            weights = Weights(*params[first : first + 2],
                              *(params[first + 2 : first + 4] if form.has_biases
                                else (None, None)))
            begin = tuple(_at(node, s, 0, number) for s in initial)
            output, state = _run(node, step, x, weights, begin, backward=direction == 1)
            outputs.append(output)
            last.append(state)
        x = outputs[0] if directions == 1 else node.tuple_call(op.concatenate, outputs, axis=2)
        if dropout and layer < form.layers - 1:
            dropped = node.call(op.random.dropout, node.random_key(), x, rate=float(dropout))
            x = node.field(dropped, 1)
    states = [_stack(node, parts) for parts in zip(*last, strict=True)]
    return node.transpose(x, (1, 0, 2)) if form.batch_first else x, *states


def _run(node: Node, step: Step, x: Expr, weights: Weights, state: State, *, backward: bool
         ) -> tuple[Expr, State]:
    """Run one direction of one layer; one matmul applies the input weights to all steps."""
    gates = _affine(node, x, weights.w, weights.wb)
    count = shape_in(x)[0]
    outputs: list[Expr] = []
    for t in reversed(range(count)) if backward else range(count):
        state = step(node, weights, _at(node, gates, 0, t), state)
        outputs.append(state[0])
    return _stack(node, outputs[::-1] if backward else outputs), state


def _at(node: Node, x: Expr, axis: int, index: int) -> Expr:
    return node.call(op.squeeze, node.slice(x, axis, index, index + 1), axis=(axis,))


def _stack(node: Node, parts: Sequence[Expr]) -> Expr:
    wide = [node.call(op.expand_dims, p, axis=0, num_newaxis=1) for p in parts]
    return wide[0] if len(wide) == 1 else node.tuple_call(op.concatenate, wide, axis=0)


_LSTM_MODE = 2


@converts("mkldnn_rnn_layer")
def one_layer(
    node: Node, x: Expr, w: Expr, r: Expr, wb: Expr, rb: Expr, h: Expr, c: Expr, reverse: bool,
    _batch_sizes: Sequence[int], mode: int, *options: object,
) -> tuple[Expr, ...]:
    """One direction of one LSTM layer, as torch decomposes LSTMs on a CPU.

    ``options`` are: hidden size, number of layers, has biases, bidirectional, batch first,
    training.
    """
    *_, bidirectional, batch_first, train = options
    if mode != _LSTM_MODE or bidirectional or batch_first or train:
        raise node.unsupported("a layer other than one direction of an LSTM at inference")
    begin = (_at(node, h, 0, 0), _at(node, c, 0, 0))
    output, state = _run(node, _lstm_step, x, Weights(w, r, wb, rb), begin, backward=reverse)
    return output, *(node.call(op.expand_dims, s, axis=0, num_newaxis=1) for s in state)
