"""Recurrent layers: LSTM, RNN and SVDF, whose states are tensors that persist between runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import op
from weft.frontend.common.loops import Loop, run_loop
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.node import Node
from weft.frontend.tflite.ops.elementwise import activated
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr

# Unrolled steps can be fused, but every copy is compiled.
_MOST_UNROLLED = 16
_BIASES, _OUTPUT_STATE, _CELL_STATE = 12, 18, 19
# The result of a step, and the states after it.
_Step = Callable[[Expr, Sequence[Expr]], "tuple[Expr, tuple[Expr, ...]]"]


def _over_time(node: Node, x: Expr, states: Sequence[Expr], step: _Step
               ) -> tuple[Expr, Sequence[Expr]]:
    """The results of all steps along axis 0 of ``x``, and the last states."""
    (count,) = node.fixed(tensor_type(x).shape[:1], "the number of steps")
    if count > _MOST_UNROLLED:
        def iterate(i: Expr, _going: Expr, carried: Sequence[Expr]) -> Sequence[Expr]:
            result, after = step(node.call(op.take, x, i, axis=0), carried)
            return [node.constant(value=True, dtype="bool"), *after, result]

        *after, stacked = run_loop(Loop(
            node, node.constant(count, "int64"), node.constant(value=True, dtype="bool"),
            tuple(states), iterate, (x, *states)))
        return stacked, after
    results = []
    for position in range(count):
        result, states = step(
            node.call(op.take, x, node.constant(position, "int32"), axis=0), states)
        results.append(result)
    return node.tuple_call(op.stack, results, axis=0), states


def _steps_first(node: Node, x: Expr) -> Expr:
    """``x`` with its steps as axis 0; also of what it gives back."""
    return x if node.option("TimeMajor") else node.transpose(x, (1, 0, 2))


@converts("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(node: Node) -> Expr:
    """Operands: input, four weights, four recurrent weights, three of the cell to gates, four
    biases, projection and its bias, two states, four of a normalisation.
    """
    if any(node.has(i) for i in (*range(9, 12), *range(16, 18), *range(20, 24))):
        raise node.unsupported("an LSTM with peepholes, projection or normalisation")
    if node.option("ProjClip", 0.0) or node.option("DiagonalRecurrentTensors", default=False):
        raise node.unsupported("an LSTM with a clipped projection or diagonal weights")
    gates = [g for g in range(4) if node.has(1 + g)]  # without an input gate: 1 - forget gate
    if gates not in ([0, 1, 2, 3], [1, 2, 3]):
        raise node.fail("a weight of a gate is missing")
    inner, recurrent, bias = (
        node.tuple_call(op.concatenate, [node.input(first + g) for g in gates], axis=0)
        for first in (1, 5, _BIASES))
    x = _steps_first(node, node.input(0))
    prepared = node.call(op.nn.bias_add, node.call(op.nn.dense, x, inner), bias, axis=2)
    (units,) = node.fixed(tensor_type(bias).shape, "the units")
    units //= len(gates)
    clip = float(node.option("CellClip", 0.0))

    def step(row: Expr, states: Sequence[Expr]) -> tuple[Expr, tuple[Expr, ...]]:
        total = node.call(op.add, row, node.call(op.nn.dense, states[0], recurrent))
        parts = dict(zip(gates, node.fields(node.call(
            op.split, total, indices_or_sections=len(gates), axis=1), len(gates)), strict=True))
        forget, output = (node.call(op.sigmoid, parts[g]) for g in (1, 3))
        admit = node.call(op.sigmoid, parts[0]) if 0 in parts else node.call(
            op.subtract, node.scalar_like(1, forget), forget)
        cell = node.call(op.add, node.call(op.multiply, forget, states[1]),
                         node.call(op.multiply, admit, activated(node, parts[2])))
        if clip:
            cell = node.call(op.clip, cell, a_min=-clip, a_max=clip)
        hidden = node.call(op.multiply, output, activated(node, cell))
        return hidden, (hidden, cell)

    states = [node.input(i) for i in (_OUTPUT_STATE, _CELL_STATE)]
    result, after = _over_time(node, prepared, states, step)
    for index, value in zip((_OUTPUT_STATE, _CELL_STATE), after, strict=True):
        node.assign(index, value)
    return _steps_first(node, result)


@converts("UNIDIRECTIONAL_SEQUENCE_RNN", "RNN")
def recurrent(node: Node) -> Expr:
    """Operands: input, weights, recurrent weights, bias, state. ``RNN`` is one step."""
    is_sequence = node.op != "RNN"
    x = _steps_first(node, node.input(0)) if is_sequence else node.call(
        op.expand_dims, node.input(0), axis=0)
    prepared = node.call(op.nn.bias_add, node.call(op.nn.dense, x, node.input(1)), node.input(3),
                         axis=2)
    weights = node.input(2)

    def step(row: Expr, states: Sequence[Expr]) -> tuple[Expr, tuple[Expr, ...]]:
        hidden = activated(node, node.call(op.add, row, node.call(op.nn.dense, states[0],
                                                                  weights)))
        return hidden, (hidden,)

    result, (last,) = _over_time(node, prepared, [node.input(4)], step)
    node.assign(4, last)
    return _steps_first(node, result) if is_sequence else node.call(op.squeeze, result, axis=(0,))


@converts("SVDF")
def svdf(node: Node) -> Expr:
    """A convolution over time of filters of rank one.

    Operands: input, weights of features, weights of time, bias, the last activations of filters.
    """
    filters, memory = node.fixed(node.shape(2), "the weights of time")
    rank = int(node.option("Rank", 1))
    state = node.reshape(node.input(4), (-1, filters, memory))
    new = node.reshape(node.call(op.nn.dense, node.input(0), node.input(1)), (-1, filters, 1))
    kept = node.call(op.strided_slice, state, begin=(1,), end=(memory,), axes=(2,))
    state = node.tuple_call(op.concatenate, [kept, new], axis=2)
    node.assign(4, node.reshape(state, node.shape(4)))
    weighted = node.call(op.sum, node.call(op.multiply, state, node.input(2)), axis=(2,))
    total = node.call(op.sum, node.reshape(weighted, (-1, filters // rank, rank)), axis=(2,))
    if node.has(3):
        total = node.call(op.nn.bias_add, total, node.input(3), axis=1)
    return activated(node, total)
