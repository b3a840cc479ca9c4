"""Random differentiable torch functions, for comparison of ``weft.grad`` with torch's autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

INPUTS = 3  # all of shape (4, 6)

# Expressions of values ``{a}``, ``{b}`` of any shapes; what eager torch refuses is left out.
EXPRESSIONS = (
    "{a}.sin()", "{a}.tanh()", "{a}.exp()", "{a}.sigmoid()", "({a} * {a} + 1).log()", "{a}.erf()",
    "({a} * {a} + 0.5).sqrt()", "{a}.abs()", "{a}.relu()", "F.gelu({a})", "F.silu({a})",
    "F.softplus({a})", "F.leaky_relu({a}, 0.2)", "F.elu({a})", "{a}.clamp(-0.7, 0.9)",
    "({a} * {a} + 0.5).rsqrt()", "{a} ** 3", "({a}.abs() + 0.5) ** {b}", "1 / ({a}.abs() + 0.7)",
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} / ({b}.abs() + 0.6)", "torch.maximum({a}, {b})",
    "torch.where({a} > {b}, {a} * 2, {b})", "torch.atan2({a}, {b}.abs() + 0.5)",
    "{a} @ {b}.transpose(-1, -2)", "F.linear({a}, {b})", "torch.cat([{a}, {b}], 0)",
    "torch.stack([{a}, {b}], -1)", "{a}.transpose(0, -1)", "{a}.reshape(-1)", "{a}.unsqueeze(1)",
    "{a}.flip(0)", "{a}[1:]", "{a}[..., ::2]", "{a}[:, 1]", "{a}.expand(2, *{a}.shape)",
    "{a}.sum(0)", "{a}.mean(-1, keepdim=True)", "{a}.amax(-1)", "{a}.var(-1)", "{a}.cumsum(0)",
    "{a}.softmax(-1)", "{a}.log_softmax(-1)", "{a}.logsumexp(-1)", "{a}.prod(-1)",
    "F.layer_norm({a}, {a}.shape[-1:])", "F.pad({a}, (1, 2))", "{a}.norm()",
    "F.batch_norm({a}, None, None, training=True)",
    "F.batch_norm({a}, {b}.detach().mean(0), {b}.detach().var(0) + 0.5, training=False)",
    "F.dropout({a}, 0.5, training=False)", "{a}.index_select(0, torch.tensor([1, 0, 1]))",
    "{a}.detach()", "{a}.detach() * {b}", "without_gradient({a})", "without_gradient({a} * {b})",
    "({a} > {b}).to({a}.dtype) * {a}", "{a}.masked_fill({a} > {b}, 0.25)",
    "F.mse_loss({a}, {b})", "F.avg_pool1d({a}.unsqueeze(0), 2)", "F.max_pool1d({a}, 2)",
    "F.conv1d({a}.unsqueeze(0), {b}.unsqueeze(-1)[:, :{a}.shape[0]])",
)


def without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x * 1.5


class RandomFunction(torch.nn.Module):
    """The sum of weighted values of ``length`` expressions over the inputs and each other."""

    def __init__(self, seed: int, length: int) -> None:
        super().__init__()
        rng = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.inputs = [torch.from_numpy(rng.standard_normal((4, 6))) for _ in range(INPUTS)]
        values = list(self.inputs)
        while len(self.lines) < length:
            picked = [max(0, len(values) - int(rng.geometric(0.3))) for _ in "ab"]
            expression = EXPRESSIONS[rng.integers(len(EXPRESSIONS))]
            text = expression.format(a=f"v[{picked[0]}]", b=f"v[{picked[1]}]")
            try:
                value = _evaluated(text, values)
            except (RuntimeError, IndexError, ValueError, TypeError):
                continue
            if 0 < value.numel() <= 2000 and value.isfinite().all() and value.abs().max() < 100:
                self.lines.append(text)
                values.append(value)
        self.codes = [compile(line, line, "eval") for line in self.lines]
        self.eval()

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        values = list(inputs)
        for code in self.codes:
            values.append(_evaluated(code, values))
        return sum((0.5 + i % 3) * v.sum() for i, v in enumerate(values[-3:]))

    def gradients(self) -> list[np.ndarray]:
        """What autograd says of the inputs, zeros where it says nothing."""
        inputs = [x.clone().requires_grad_(True) for x in self.inputs]
        total = self(*inputs)
        if not total.requires_grad:
            return [np.zeros(x.shape) for x in inputs]
        found = torch.autograd.grad(total, inputs, allow_unused=True)
        return [np.zeros(x.shape) if g is None else g.numpy()
                for x, g in zip(inputs, found, strict=True)]


def _evaluated(text: Any, values: list[torch.Tensor]) -> torch.Tensor:
    names = {"v": values, "torch": torch, "F": torch.nn.functional,
             "without_gradient": without_gradient}
    value: torch.Tensor = eval(text, names)
    return value
