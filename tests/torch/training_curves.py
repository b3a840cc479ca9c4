"""Curves of the loss in weft and in torch, from the same initial values on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from examples.train.training import compiled_step
from tests.unit.nn.twins import copy_state
from weft import nn, optim


def _torch_step(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    import torch

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(y))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss.detach()

    return step


def curves_of(
    ours: Any, theirs: Any, batches: Iterable[Any], name: str = "AdamW", **options: Any
) -> list[np.ndarray]:
    """The losses of both libraries on the same batches, from the same initial values."""
    import torch

    copy_state(theirs, ours)
    options = options or {"lr": 3e-3}
    optimizer = getattr(optim, name)(ours.parameters(), **options)
    steps = (compiled_step(ours, optimizer, nn.functional.cross_entropy),
             _torch_step(theirs, getattr(torch.optim, name)(theirs.parameters(), **options)))
    given = list(batches)
    return [np.array([float(step(x, y).item()) for x, y in given])
            for step, (x, y) in zip(steps, [given[0]] * 2, strict=True)]
