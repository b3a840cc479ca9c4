"""Needle's recurrent modules and its embedding."""

from __future__ import annotations

import math
from typing import Any

from weft.compat.needle import init
from weft.compat.needle.autograd import OPERATORS
from weft.compat.needle.nn import Module, Sigmoid, parameter
from weft.compat.needle.ops import Tensor, make_tuple
from weft.support.errors import InvalidInputError


class _Cell(Module):
    """The product of an input and of a state with weights, in ``gates`` blocks."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool, gates: int, device: Any,
                 dtype: str) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        bound = math.sqrt(1 / hidden_size)
        width = gates * hidden_size

        def drawn(*shape: int) -> Tensor:
            return parameter(init.rand(*shape, low=-bound, high=bound, device=device, dtype=dtype))

        self.W_ih, self.W_hh = drawn(input_size, width), drawn(hidden_size, width)
        self.bias_ih, self.bias_hh = (drawn(width), drawn(width)) if bias else (None, None)

    def _sums(self, x: Tensor, h: Tensor) -> Tensor:
        total = x @ self.W_ih + h @ self.W_hh
        if self.bias_ih is None or self.bias_hh is None:
            return total
        bias = (self.bias_ih + self.bias_hh).reshape((1, total.shape[1]))
        return total + bias.broadcast_to(total.shape)

    def _zeros(self, x: Tensor) -> Tensor:
        return init.zeros(x.shape[0], self.hidden_size, device=x.device)


class RNNCell(_Cell):
    """nonlinearity(x W_ih + b_ih + h W_hh + b_hh)"""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh", device: Any = None, dtype: str = "float32") -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidInputError("unknown nonlinearity", expected="tanh or relu",
                                    got=repr(nonlinearity))
        self.nonlinearity = nonlinearity

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        total = self._sums(x, self._zeros(x) if h is None else h)
        return OPERATORS.tanh(total) if self.nonlinearity == "tanh" else OPERATORS.relu(total)


class LSTMCell(_Cell):
    """The next (h, c) from x and (h, c); gates are in the order i, f, g, o."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: str = "float32") -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)
        self.sigmoid = Sigmoid()

    def forward(self, x: Tensor, h: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        before, cell = (self._zeros(x), self._zeros(x)) if h is None else h
        total = self._sums(x, before).reshape((x.shape[0], 4, self.hidden_size))
        i, f, g, o = OPERATORS.split(total, axis=1)
        cell = self.sigmoid(f) * cell + self.sigmoid(i) * OPERATORS.tanh(g)
        return self.sigmoid(o) * OPERATORS.tanh(cell), cell


class RNN(Module):
    """Layers of ``RNNCell`` over (length, N, input_size); gives all results and the last states."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 nonlinearity: str = "tanh", device: Any = None, dtype: str = "float32") -> None:
        super().__init__()
        self.rnn_cells = [RNNCell(input_size if i == 0 else hidden_size, hidden_size, bias,
                                  nonlinearity, device, dtype) for i in range(num_layers)]

    def forward(self, x: Tensor, h0: Tensor | None = None) -> tuple[Tensor, Tensor]:
        steps = list(OPERATORS.split(x, axis=0))
        states = [None] * len(self.rnn_cells) if h0 is None else list(OPERATORS.split(h0, axis=0))
        last: list[Any] = []
        for cell, first in zip(self.rnn_cells, states, strict=True):
            h = first
            for t, value in enumerate(steps):
                h = steps[t] = cell(value, h)
            last.append(h)
        return _stacked(steps), _stacked(last)


class LSTM(Module):
    """Layers of ``LSTMCell``; gives all results and the last (h, c)."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 device: Any = None, dtype: str = "float32") -> None:
        super().__init__()
        self.lstm_cells = [LSTMCell(input_size if i == 0 else hidden_size, hidden_size, bias,
                                    device, dtype) for i in range(num_layers)]

    def forward(self, x: Tensor, h: tuple[Tensor, Tensor] | None = None
                ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        steps = list(OPERATORS.split(x, axis=0))
        states: list[Any] = [None] * len(self.lstm_cells) if h is None else list(zip(
            OPERATORS.split(h[0], axis=0), OPERATORS.split(h[1], axis=0), strict=True))
        last: list[Any] = []
        for cell, first in zip(self.lstm_cells, states, strict=True):
            state = first
            for t, value in enumerate(steps):
                state = cell(value, state)
                steps[t] = state[0]
            last.append(state)
        return _stacked(steps), (_stacked([h for h, _ in last]), _stacked([c for _, c in last]))


class Embedding(Module):
    """The vectors of integers (length, N), which may be floats as Needle's arrays are."""

    def __init__(self, num_embeddings: int, embedding_dim: int, device: Any = None,
                 dtype: str = "float32") -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = parameter(init.randn(num_embeddings, embedding_dim, device=device,
                                           dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        length, n = x.shape
        hot = init.one_hot(self.num_embeddings, x, device=x.device)
        rows = hot.reshape((length * n, self.num_embeddings)) @ self.weight
        return rows.reshape((length, n, self.embedding_dim))


def _stacked(parts: list[Tensor]) -> Tensor:
    return OPERATORS.stack(make_tuple(*parts), 0)
