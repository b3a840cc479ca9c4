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
