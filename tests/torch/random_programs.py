"""Random torch programs: views, writes in place and arithmetic, for comparison with eager torch.

A program is drawn step by step on an example; a step that eager torch refuses is left out. Sizes
are taken from tensors, not written down, so that one program runs at several sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

Step = Callable[[list[torch.Tensor]], torch.Tensor]


@dataclass
class Program:
    """Steps over a list of values, the inputs first; returns the values numbered ``results``."""

    inputs: int
    lines: list[str] = field(default_factory=list)
    results: tuple[int, ...] = ()

    def __str__(self) -> str:
        names = ", ".join(f"v{i}" for i in range(self.inputs))
        made = "".join(f"    {line}\n" for line in self.lines)
        return f"def f({names}):\n{made}    return {', '.join(f'v{i}' for i in self.results)},\n"

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        names: dict[str, Any] = {"torch": torch}
        exec(compile(str(self), f"<program {abs(hash(str(self)))}>", "exec"), names)
        return names["f"]


VIEWS = (
    "{a}[{a}.shape[0] // 2:]", "{a}[:{a}.shape[0] // 2 + 1]", "{a}[1:]", "{a}[..., :-1]",
    "{a}[::2]", "{a}.chunk(2)[-1]", "{a}.chunk(2, -1)[0]", "{a}.narrow(0, 1, {a}.shape[0] - 1)",
    "{a}.t()", "{a}.transpose(0, -1)", "{a}.view(-1)", "{a}.view({a}.shape[-1], -1).t()",
    "{a}.reshape(-1)", "{a}.unsqueeze(0)", "{a}.unsqueeze(-1)", "{a}.squeeze()", "{a}[0]",
    "{a}[-1]", "{a}.select(-1, 0)", "{a}.unsqueeze(0).expand(3, *{a}.shape)",
    "{a}.unbind(0)[-1]", "{a}.flatten()", "{a}.movedim(0, -1)", "{a}.diagonal()",
    "{a}.split(2)[0]", "{a}.expand(2, *{a}.shape)", "{a}.detach()", "{a}.view_as({a})",
    "{a}.unfold(0, 2, 1)", "{a}.permute(*range({a}.ndim - 1, -1, -1))", "{a}.T",
)
VALUES = (
    "{a}.relu()", "{a}.sin()", "{a} + {b}", "{a} * {b}", "{a} * 2", "{a} - {b}.mean()",
    "{a} @ {b}", "{a} @ {b}.t()", "{a}.sum(0)", "{a}.sum(-1, keepdim=True)", "{a}.softmax(-1)",
    "torch.cat([{a}, {b}])", "torch.stack([{a}, {b}])", "torch.where({a} > 0, {a}, {b})",
    "{a}.clone()", "{a}.contiguous()", "{a}.flip(0)", "{a}.cumsum(0)", "{a}.tanh().t()",
    "torch.maximum({a}, {b})", "{a}.amax(0)", "{a}.exp()[..., 1:]", "{a}.roll(1, 0)",
    "{a}.reshape({a}.shape[-1], -1)", "torch.zeros_like({a})", "{a}.new_ones({a}.shape)",
    "torch.linalg.matrix_norm({a}.unsqueeze(0))", "torch.special.bessel_j0({a}.detach())",
)
WRITES = (
    "{a}.add_(1)", "{a}.mul_({b})", "{a}.relu_()", "{a}.zero_()", "{a}.copy_({b})",
    "{a}.fill_(0.5)", "{a}[0].add_(1)", "{a}[1:].mul_(2)", "{a}.t().sub_(0.25)",
    "{a}.clamp_(-1, 1)", "{a}.masked_fill_({a} > 0.5, 0.25)", "{a}.transpose(0, -1).mul_(3)",
    "{a}.narrow(0, 0, 1).copy_({b})", "{a}.view(-1)[::2].add_({b}.mean())",
)


Make = Callable[[int], list[torch.Tensor]]


def inputs_of(layout: str, seed: int, *, grad: bool = False) -> Make:
    """Makes two inputs of about ``size`` rows, the same ones each time, in a layout of interest."""
    def make(size: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(seed + 1000 * size)
        base = torch.randn(size + 2, size + 2, generator=generator)
        other = torch.randn(size, size, generator=generator)
        first = {
            "dense": base[:size, :size].contiguous(),
            "transposed": base[:size, :size].contiguous().t(),
            "offset": base[1:-1, 2:],
            "expanded": base[0, :size].expand(size, size),
            "aliased": base[:-2, :-2],
        }[layout]
        second = base[1:-1, 1:-1] if layout == "aliased" else other
        made = [first, second]
        return [x.detach().requires_grad_(grad) for x in made] if grad else made

    return make


def draw_program(rng: np.random.Generator, make: Make, sizes: Sequence[int], length: int
                 ) -> Program:
    """A program of ``length`` steps that eager torch runs on inputs of all ``sizes``."""
    program, states = Program(2), [make(size) for size in sizes]
    while len(program.lines) < length:
        kind = (VIEWS, VALUES, WRITES)[rng.choice(3, p=(0.45, 0.35, 0.2))]
        count = len(states[0])
        a, b = (f"v{max(0, count - 1 - int(rng.geometric(0.4)) + 1)}" for _ in range(2))
        text = kind[rng.integers(len(kind))].format(a=a, b=b)
        made = [_tried(text, state) for state in states]
        if any(value is None for value in made):
            continue
        for state, value in zip(states, made, strict=True):
            state.append(value)
        program.lines.append(f"v{count} = {text}")
    numbers = np.arange(program.inputs, len(states[0]))
    picked = rng.choice(numbers, size=min(3, len(numbers)), replace=False)
    program.results = tuple(sorted({*map(int, picked), int(numbers[-1])}))
    return program


def _tried(text: str, state: list[torch.Tensor]) -> torch.Tensor | None:
    """The value of an expression, ``None`` where eager torch refuses it or it grows."""
    try:
        value = eval(text, {"torch": torch}, {f"v{i}": value for i, value in enumerate(state)})
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    fits = 0 < value.numel() <= 600 and value.ndim <= 4 and bool(value.isfinite().all())
    return value if fits else None


@dataclass
class Outcome:
    """What a program gave, and what it left in its inputs."""

    results: list[torch.Tensor]
    inputs: list[torch.Tensor]
    gradients: list[torch.Tensor | None]

    def memory(self) -> list[int]:
        """For every tensor the first of all that lies in the same memory."""
        pointers = [x.untyped_storage().data_ptr() for x in (*self.inputs, *self.results)]
        return [pointers.index(p) for p in pointers]

    def layout(self) -> list[tuple[object, ...]]:
        return [(x.shape, x.dtype, _strides(x), x.storage_offset()) for x in self.results]


def _strides(x: torch.Tensor) -> tuple[int, ...]:
    """Those that say where elements lie."""
    return tuple(0 if n == 1 else s for n, s in zip(x.shape, x.stride(), strict=True))


def run(function: Callable[..., Any], inputs: list[torch.Tensor]) -> Outcome:
    results = list(function(*inputs))
    gradients: list[torch.Tensor | None] = []
    if any(r.requires_grad for r in results):
        total = sum((r * (1 + i)).square().sum() for i, r in enumerate(results) if r.requires_grad)
        gradients = list(torch.autograd.grad(total, inputs, allow_unused=True))
    return Outcome(results, inputs, gradients)


def difference(got: Outcome, expected: Outcome) -> str:
    """What differs, in words; empty where nothing does."""
    if got.layout() != expected.layout():
        return f"layouts {got.layout()}, expected {expected.layout()}"
    if got.memory() != expected.memory():
        return f"memory {got.memory()}, expected {expected.memory()}"
    pairs = [*zip(got.results, expected.results, strict=True),
             *zip(got.inputs, expected.inputs, strict=True),
             *zip(got.gradients, expected.gradients, strict=True)]
    for number, (mine, theirs) in enumerate(pairs):
        if mine is None or theirs is None:
            if mine is not theirs:
                return f"tensor {number}: {mine} instead of {theirs}"
        elif not torch.allclose(mine, theirs, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"tensor {number}: {mine} instead of {theirs}"
    return ""
