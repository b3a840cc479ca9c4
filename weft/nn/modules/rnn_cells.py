"""Recurrent cells: one step of RNN, LSTM and GRU."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from weft.eager.emitter import call
from weft.eager.functions import creation
from weft.eager.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn.functional.sizes import with_batch, without_batch
from weft.nn.modules.linear import new_parameter
from weft.nn.modules.module import Module, ModuleError
from weft.nn.parameter import Parameter


def rnn_step(gates: Tensor, hidden: Tensor, nonlinearity: str) -> Tensor:
    """The next hidden state (N, H); ``gates`` and ``hidden`` are the two products (N, H)."""
    return F.relu(gates + hidden) if nonlinearity == "relu" else F.tanh(gates + hidden)


def lstm_step(gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Hidden and cell state; the products (N, 4 H) hold the gates i, f, g, o."""
    i, f, g, o = call("split", gates + hidden, indices_or_sections=4, axis=-1)
    memory = F.sigmoid(f) * cell + F.sigmoid(i) * F.tanh(g)
    return F.sigmoid(o) * F.tanh(memory), memory


def gru_step(gates: Tensor, hidden: Tensor, state: Tensor) -> Tensor:
    """The next hidden state; the products (N, 3 H) hold the gates r, z, n."""
    r, z, n = call("split", gates, indices_or_sections=3, axis=-1)
    own_r, own_z, own_n = call("split", hidden, indices_or_sections=3, axis=-1)
    kept = F.sigmoid(z + own_z)
    new = F.tanh(n + F.sigmoid(r + own_r) * own_n)
    return new + kept * (state - new)


class _Cell(Module):
    """The weights of one step: ``weight_ih``, ``weight_hh`` and two biases."""

    gates: ClassVar[int]
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = self.gates * hidden_size
        self.weight_ih = new_parameter((rows, input_size), dtype, device)
        self.weight_hh = new_parameter((rows, hidden_size), dtype, device)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, new_parameter((rows,), dtype, device) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform numbers within 1 / sqrt(hidden_size), as in torch."""
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _state(self, x: Tensor) -> Tensor:
        return creation.zeros((x.shape[0], self.hidden_size), dtype=x.dtype,
                              device=x.device)

    def _products(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        if x.shape[-1] != self.input_size:
            raise ModuleError(f"{type(self).__name__}: wrong input size",
                              expected=self.input_size, got=x.shape[-1])
        return (F.linear(x, self.weight_ih, self.bias_ih),
                F.linear(h, self.weight_hh, self.bias_hh))

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        return text if self.bias else f"{text}, bias=False"


class RNNCell(_Cell):
    """tanh or ReLU of W x + b + R h + c: (N, in) and (N, H) to (N, H)."""

    gates = 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        device: Any = None, dtype: Any = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ModuleError("unknown nonlinearity", expected="tanh or relu",
                              got=repr(nonlinearity))
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, has_batch = with_batch(input, 2, "RNNCell")
        h = self._state(x) if hx is None else with_batch(hx, 2, "RNNCell")[0]
        result = rnn_step(*self._products(x, h), self.nonlinearity)
        return without_batch(result, has_batch)


class LSTMCell(_Cell):
    """One step of a long short-term memory (Hochreiter and Schmidhuber 1997)."""

    gates = 4

    def forward(
        self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        x, has_batch = with_batch(input, 2, "LSTMCell")
        h, c = ((self._state(x),) * 2 if hx is None
                else (with_batch(t, 2, "LSTMCell")[0] for t in hx))
        hidden, memory = lstm_step(*self._products(x, h), c)
        return without_batch(hidden, has_batch), without_batch(memory, has_batch)


class GRUCell(_Cell):
    """One step of a gated recurrent unit (Cho et al. 2014)."""

    gates = 3

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, has_batch = with_batch(input, 2, "GRUCell")
        h = self._state(x) if hx is None else with_batch(hx, 2, "GRUCell")[0]
        return without_batch(gru_step(*self._products(x, h), h), has_batch)
