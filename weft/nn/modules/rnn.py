"""Recurrent networks: RNN, LSTM, GRU with layers, directions and dropout.

The products with the inputs are one matrix product for all steps; the steps are unrolled.
"""

from __future__ import annotations

import itertools
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
from weft.nn.utils.rnn import PackedSequence

State = tuple[Tensor, ...]


class RNNBase(Module):
    """Weights ``weight_ih_l0``, ``weight_hh_l0``, … in torch's names and shapes."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1  # tensors of the state

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:
        super().__init__()
        if num_layers < 1 or hidden_size < 1:
            raise ModuleError("num_layers and hidden_size are at least 1",
                              got=f"{num_layers}, {hidden_size}")
        if not 0 <= dropout <= 1:
            raise ModuleError("dropout is out of range", expected="0 to 1", got=dropout)
        if proj_size and (self.states < 2 or not 0 < proj_size < hidden_size):
            raise ModuleError("proj_size is for LSTM, and smaller than hidden_size",
                              expected=f"0 to {hidden_size - 1}", got=proj_size)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.directions = 2 if bidirectional else 1
        self.output_size = proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else self.output_size * self.directions
            for suffix in self._suffixes(layer):
                self._add(suffix, width, device, dtype)
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _add(self, suffix: str, width: int, device: Any, dtype: Any) -> None:
        rows = self.gates * self.hidden_size
        shapes = {"weight_ih": (rows, width), "weight_hh": (rows, self.output_size)}
        if self.bias:
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        for name, shape in shapes.items():
            self.register_parameter(name + suffix, new_parameter(shape, dtype, device))

    def reset_parameters(self) -> None:
        """Uniform numbers within 1 / sqrt(hidden_size), as in torch."""
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing: there is no separate memory for the weights, as cuDNN has in torch."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights of each layer and direction."""
        return [[w for w in self._weights(suffix) if w is not None]
                for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        raise ModuleError(f"{type(self).__name__} has no step")

    def _weights(self, suffix: str) -> tuple[Parameter | None, ...]:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
        return tuple(self._parameters.get(name + suffix) for name in names)

    def _run(
        self, input: Tensor, state: State | None, counts: Sequence[int] | None
    ) -> tuple[Tensor, State]:
        """``input`` (L, N, in); all hidden states (L, N, directions * H), and the last state.

        With ``counts``, the sequences of each step, ``input`` is packed: (sum of counts, in).
        """
        if input.shape[-1] != self.input_size:
            raise ModuleError(f"{type(self).__name__}: wrong input size",
                              expected=self.input_size, got=input.shape[-1])
        if 0 in input.shape[:1]:
            raise ModuleError(f"{type(self).__name__}: the sequence has no steps")
        batch = input.shape[1] if counts is None else counts[0]
        last: list[State] = []
        x = input
        for layer in range(self.num_layers):
            outputs = []
            for direction, suffix in enumerate(self._suffixes(layer)):
                first = self._first(x, batch, state, layer * self.directions + direction)
                steps, final = self._one_direction(x, first, suffix, counts, direction == 1)
                outputs.append(steps)
                last.append(final)
            x = outputs[0] if len(outputs) == 1 else call("concatenate", *outputs, axis=-1)
            if layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, tuple(call("stack", *each, axis=0) for each in zip(*last, strict=True))

    def _first(self, x: Tensor, batch: int, state: State | None, index: int) -> State:
        sizes = (self.output_size, self.hidden_size)[: self.states]
        if state is None:
            return tuple(creation.zeros((batch, size), dtype=x.dtype, device=x.device)
                         for size in sizes)
        for tensor, size in zip(state, sizes, strict=True):
            wanted = (self.num_layers * self.directions, batch, size)
            if tuple(tensor.shape) != wanted:
                raise ModuleError(f"{type(self).__name__}: wrong shape of the initial state",
                                  expected=wanted, got=tuple(tensor.shape))
        return tuple(tensor[index] for tensor in state)

    def _one_direction(
        self, x: Tensor, state: State, suffix: str, counts: Sequence[int] | None,
        is_reverse: bool,
    ) -> tuple[Tensor, State]:
        """All hidden states, padded or packed as ``x``, and the last state."""
        w, r, wb, rb, projection = self._weights(suffix)
        assert w is not None
        assert r is not None
        products = _steps(F.linear(x, w, wb), counts)
        outputs: list[Tensor] = [*products]
        places = range(len(products))
        for t in reversed(places) if is_reverse else places:
            rest: State = ()
            if counts is not None and counts[t] < counts[0]:
                state, rest = _parted(state, counts[t])
            state = self._step(products[t], F.linear(state[0], r, rb), state)
            if projection is not None:
                state = (F.linear(state[0], projection), *state[1:])
            outputs[t] = state[0]
            if rest:
                state = tuple(call("concatenate", *each, axis=0)
                              for each in zip(state, rest, strict=True))
        joined = (call("stack", *outputs, axis=0) if counts is None
                  else call("concatenate", *outputs, axis=0))
        return joined, state

    def _call(
        self, input: Tensor | PackedSequence, hx: Sequence[Tensor] | None
    ) -> tuple[Any, State]:
        """Run with or without a batch, with the batch first or second, or packed."""
        if isinstance(input, PackedSequence):
            return self._call_packed(input, hx)
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
        result, last = self._run(x, state, None)
        if not has_batch:
            result = call("squeeze", result, axis=1)
            last = tuple(call("squeeze", t, axis=1) for t in last)
        return call("transpose", result, axes=(1, 0, 2)) if is_swapped else result, last

    def _call_packed(
        self, packed: PackedSequence, hx: Sequence[Tensor] | None
    ) -> tuple[PackedSequence, State]:
        """Packed results, and the last states in the order of the batch before it was sorted."""
        order = packed.sorted_indices
        state = None if hx is None else tuple(
            t if order is None else call("take", t, order, axis=1) for t in hx)
        counts = [int(count) for count in packed.batch_sizes.numpy()]
        result, last = self._run(packed.data, state, counts)
        if packed.unsorted_indices is not None:
            last = tuple(call("take", t, packed.unsorted_indices, axis=1) for t in last)
        return packed._replace(data=result), last

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (("proj_size", 0), ("num_layers", 1), ("bias", True),
                              ("batch_first", False), ("dropout", 0.0), ("bidirectional", False)):
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text


def _steps(x: Tensor, counts: Sequence[int] | None) -> list[Tensor]:
    """The rows (N, …) of each step of (L, N, …), or of packed (sum of counts, …)."""
    if counts is None:
        parts = call("split", x, indices_or_sections=x.shape[0], axis=0)
        return [call("squeeze", part, axis=0) for part in parts]
    ends = [*itertools.accumulate(counts)]
    return list(call("split", x, indices_or_sections=tuple(ends[:-1]), axis=0))


def _parted(state: State, count: int) -> tuple[State, State]:
    """The first ``count`` rows of a state, and the others."""
    parts = [call("split", t, indices_or_sections=(count,), axis=0) for t in state]
    return tuple(part[0] for part in parts), tuple(part[1] for part in parts)


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
                         bidirectional, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        return (rnn_step(gates, hidden, self.nonlinearity),)

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Any, Tensor]:
        result, (last,) = self._call(input, None if hx is None else (hx,))
        return result, last


class LSTM(RNNBase):
    """Long short-term memory; returns (L, N, H) and the last (h, c) of (layers, N, H).

    With ``proj_size`` the hidden states have that size: ``weight_hr_l0`` … project them.
    """

    gates, states = 4, 2

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        return lstm_step(gates, hidden, state[1])

    def forward(
        self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Any, tuple[Tensor, Tensor]]:
        result, (hidden, memory) = self._call(input, hx)
        return result, (hidden, memory)


class GRU(RNNBase):
    """Gated recurrent unit; returns (L, N, H) and the last (layers, N, H)."""

    gates = 3

    def _step(self, gates: Tensor, hidden: Tensor, state: State) -> State:
        return (gru_step(gates, hidden, state[0]),)

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None
    ) -> tuple[Any, Tensor]:
        result, (last,) = self._call(input, None if hx is None else (hx,))
        return result, last
