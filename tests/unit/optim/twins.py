"""An optimiser of weft and its twin of torch, on the same loss."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import nn, optim
from weft.eager.tensor import Tensor

STEPS = 20
_START = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
_PULL = np.random.default_rng(1).normal(size=(STEPS, 3, 4)).astype(np.float32)


def _train(optimiser: Any, weight: Any, make: Any) -> np.ndarray:
    """Weights after each step of a loss whose gradients differ by orders of magnitude."""
    scale = make(np.logspace(-3, 1, 4).astype(np.float32))
    history = []
    for pull in _PULL:
        optimiser.zero_grad()
        (((weight - make(pull)) * scale) ** 2).sum().backward()
        optimiser.step()
        history.append(np.array(weight.detach().numpy()))
    return np.stack(history)


def twins_of(name: str, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, Any, Any]:
    """The weights after each step in weft and in torch, and the two optimisers."""
    import torch

    theirs, ours = torch.nn.Parameter(torch.tensor(_START)), nn.Parameter(_START)
    their_optimiser = getattr(torch.optim, name)([theirs], **options)
    our_optimiser = getattr(optim, name)([ours], **options)
    return (_train(our_optimiser, ours, Tensor), _train(their_optimiser, theirs, torch.tensor),
            our_optimiser, their_optimiser)


def inputs_of(name: str) -> list[Any]:
    """The inputs of an optimiser in torch's database."""
    return _record_of(name).optim_inputs_func(device="cpu", dtype=None)


def wrong_inputs_of(name: str) -> list[Any]:
    """The inputs in torch's database that its optimiser refuses."""
    import torch

    return _record_of(name).optim_error_inputs_func(device="cpu", dtype=torch.float32)


def _record_of(name: str) -> Any:
    from torch.testing._internal.common_optimizers import optim_db

    return next(record for record in optim_db if record.name == name)


def as_weft(value: Any) -> Any:
    """A value, or a tree of values, whose tensors of torch are tensors of weft."""
    import torch

    if isinstance(value, torch.Tensor):
        return Tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {k: as_weft(v) for k, v in value.items()}
    return type(value)(map(as_weft, value)) if isinstance(value, list | tuple) else value


def as_torch(value: Any) -> Any:
    """A value, or a tree of values, whose tensors of weft are tensors of torch."""
    import torch

    if isinstance(value, Tensor):
        return torch.tensor(value.detach().numpy())
    if isinstance(value, dict):
        return {k: as_torch(v) for k, v in value.items()}
    return type(value)(map(as_torch, value)) if isinstance(value, list | tuple) else value


class Pair:
    """The same parameters, losses and steps in weft and in torch.

    Float64 for those optimisers whose decisions hang on the last digits.
    """

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        import torch

        rng = np.random.default_rng(3)
        kind = np.float64 if name == "LBFGS" else np.float32
        shapes = [(5, 3), (3, 5), (4, 4)] if name == "Muon" else [(3, 4), (5,), (2, 3, 4)]
        self.goals = [rng.normal(size=shape).astype(kind) for shape in shapes]
        starts = [rng.normal(size=shape).astype(kind) for shape in shapes]
        self.name, self.options = name, options
        self.theirs = [torch.nn.Parameter(torch.tensor(a)) for a in starts]
        self.ours = [nn.Parameter(a) for a in starts]
        self.their_optimiser = getattr(torch.optim, name)(self.theirs, **options)
        self.our_optimiser = getattr(optim, name)(self.ours, **as_weft(options))

    def steps(self, count: int) -> None:
        """Take steps in both."""
        import torch

        for _ in range(count):
            self.our_optimiser.step(self._closure(self.our_optimiser, self.ours, Tensor))
            self.their_optimiser.step(
                self._closure(self.their_optimiser, self.theirs, torch.tensor))

    def _closure(self, optimiser: Any, parameters: list[Any], make: Any) -> Any:
        def closure() -> Any:
            optimiser.zero_grad()
            losses = [((p - make(goal)) ** 2).sum() * (1 + i) + (p * p * p * p).sum() * 0.1
                      for i, (p, goal) in enumerate(zip(parameters, self.goals, strict=True))]
            loss = losses[0] + losses[1] + losses[2]
            loss.backward()
            return loss

        return closure

    @property
    def difference(self) -> float:
        """The largest difference of a parameter."""
        return max(float(np.abs(q.detach().numpy() - p.detach().numpy()).max())
                   for p, q in zip(self.theirs, self.ours, strict=True))
