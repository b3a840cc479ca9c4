"""Recurrent networks: RNN, LSTM, GRU with layers, directions and dropout.

The products with the inputs are one matrix product for all steps; the steps are unrolled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from weft.eager.emitter import call
from weft.eager.functions import creation
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module, ModuleError
from weft.nn.modules.rnn_cells import gru_step, lstm_step, rnn_step
from weft.nn.parameter import Parameter

State = tuple[Tensor, ...]


class RNNBase(Module):
    """Weights ``weight_ih_l0``, ``weight_hh_l0``, … in torch's names and shapes."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1  # tensors of the state

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_layers < 1 or hidden_size < 1:
            raise ModuleError("num_layers and hidden_size are at least 1",
                              got=f"{num_layers}, {hidden_size}")
        if not 0 <= dropout <= 1:
            raise ModuleError("dropout is out of range", expected="0 to 1", got=dropout)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional = bidirectional
        self.directions = 2 if bidirectional else 1
        rows = self.gates * hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else hidden_size * self.directions
            for suffix in self._suffixes(layer):
                self._add(suffix, rows, width, device, dtype)
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _add(self, suffix: str, rows: int, width: int, device: Any, dtype: Any) -> None:
        self.register_parameter(f"weight_ih{suffix}", new_parameter((rows, width), dtype, device))
        self.register_parameter(f"weight_hh{suffix}",
                                new_parameter((rows, self.hidden_size), dtype, device))
        if self.bias:
            self.register_parameter(f"bias_ih{suffix}", new_parameter((rows,), dtype, device))
            self.register_parameter(f"bias_hh{suffix}", new_parameter((rows,), dtype, device))

    def reset_parameters(self) -> None:
        """Uniform numbers within 1 / sqrt(hidden_size), as in torch."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: there is no separate memory for the weights, as cuDNN has in torch."""

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        raise ModuleError(f"{type(self).__name__} has no step")

    def _weights(self, suffix: str) -> tuple[Parameter | None, ...]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        return tuple(self._parameters.get(name + suffix) for name in names)

    def _run(self, input: Tensor, state: State | None) -> tuple[Tensor, State]:
        """``input`` (L, N, in); all hidden states (L, N, directions * H), and the last state."""
        if input.shape[-1] != self.input_size:
            raise ModuleError(f"{type(self).__name__}: wrong input size",
                              expected=self.input_size, got=input.shape[-1])
        last: list[State] = []
        x = input
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                first = self._first(x, state, layer * self.directions + direction)
                steps, final = self._one_direction(x, first, suffix, is_reverse=direction == 1)
                outputs.append(steps)
                last.append(final)
            x = outputs[0] if len(outputs) == 1 else call("concatenate", *outputs, axis=2)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(call("stack", *each, axis=0) for each in zip(*last, strict=True))

    def _first(self, x: Tensor, state: State | None, index: int) -> State:
        if state is None:
            zeros = creation.zeros((x.shape[1], self.hidden_size), dtype=x.dtype)
            return (zeros,) * self.states
        wanted = (self.num_layers * self.directions, x.shape[1], self.hidden_size)
        for tensor in state:
            if tuple(tensor.shape) != wanted:
                raise ModuleError(f"{type(self).__name__}: wrong shape of the initial state",
                                  expected=wanted, got=tuple(tensor.shape))
        return tuple(tensor[index] for tensor in state)

    def _one_direction(
        self, x: Tensor, state: State, suffix: str, is_reverse: bool
    ) -> tuple[Tensor, State]:
        """All hidden states (L, N, H), and the last state."""
        w, r, wb, rb = self._weights(suffix)
        assert w is not None
        assert r is not None
        length = x.shape[0]
        products = call("split", F.linear(x, w, wb), indices_or_sections=length, axis=0)
        outputs: list[Tensor] = [products[0]] * length
        for t in reversed(range(length)) if is_reverse else range(length):
            gates = call("squeeze", products[t], axis=0)
            state = self._step(gates, F.linear(state[0], r, rb), state)
            outputs[t] = state[0]
        return call("stack", *outputs, axis=0), state

    def _call(self, input: Tensor, hx: Sequence[Tensor] | None) -> tuple[Tensor, State]:
        """Run with or without a batch, and with the batch first or second."""
        if input.ndim not in (2, 3):
            raise ModuleError(f"{type(self).__name__}: wrong number of dimensions",
                              expected="3, or 2 without a batch",
                              got=f"shape {tuple(input.shape)}")
        has_batch = input.ndim == 3
        state = None if hx is None else tuple(hx)
        if not has_batch:
            input = call("expand_dims", input, axis=1)
            state = None if state is None else tuple(
                call("expand_dims", t, axis=1) for t in state)
        is_swapped = has_batch and self.batch_first
        x = call("transpose", input, axes=(1, 0, 2)) if is_swapped else input
        result, last = self._run(x, state)
        if not has_batch:
            result = call("squeeze", result, axis=1)
            last = tuple(call("squeeze", t, axis=1) for t in last)
        return call("transpose", result, axes=(1, 0, 2)) if is_swapped else result, last

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("num_layers", 1), ("bias", True), ("batch_first", False),
                              ("dropout", 0.0), ("bidirectional", False)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    """h' = tanh(W x + b + R h + c), or ReLU; returns (L, N, H) and the last (layers, N, H)."""

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1,
        nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ModuleError("unknown nonlinearity", expected="tanh or relu",
                              got=repr(nonlinearity))
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, device, dtype)
        self.nonlinearity = nonlinearity

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        return (rnn_step(gates, hidden, self.nonlinearity),)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        result, (last,) = self._call(input, None if hx is None else (hx,))
        return result, last


class LSTM(RNNBase):
    """Long short-term memory; returns (L, N, H) and the last (h, c) of (layers, N, H)."""

    gates, states = 4, 2

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        return lstm_step(gates, hidden, state[1])

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        result, (hidden, memory) = self._call(input, hx)
        return result, (hidden, memory)


class GRU(RNNBase):
    """Gated recurrent unit; returns (L, N, H) and the last (layers, N, H)."""

    gates = 3

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        return (gru_step(gates, hidden, state[0]),)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> tuple[Tensor, Tensor]:
        result, (last,) = self._call(input, None if hx is None else (hx,))
        return result, last
