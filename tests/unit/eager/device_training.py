"""Small trainings of a convolutional network and of a language model, on any device."""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from examples.train.models import resnet9, transformer_model
from weft import nn

MODELS = ("resnet9", "gpt")
_SYMBOLS, _LENGTH = 5, 4


def losses(name: str, where: str, steps: int = 3, *, is_compiled: bool = True) -> list[float]:
    """The losses of the first steps of a model on ``where``: the one line that names a device."""
    weft.manual_seed(0)
    numbers = np.random.default_rng(0)
    model, x, y = _resnet9(numbers) if name == "resnet9" else _gpt(numbers)
    model, x, y = model.to(where), x.to(where), y.to(where)
    optimizer = weft.optim.SGD(model.parameters(), lr=0.05, momentum=0.9) \
        if name == "resnet9" else weft.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = weft.train_step(step) if is_compiled else step
    found = [run(x, y).item() for _ in range(steps)]
    assert {str(t.device) for t in (*model.parameters(), *model.buffers()) if t.ndim} \
        == {str(x.device)}
    return found


def _resnet9(numbers: np.random.Generator) -> tuple[Any, Any, Any]:
    images = numbers.standard_normal((2, 1, 32, 32), np.float32)
    return resnet9(nn, 1, 3, width=2), weft.tensor(images), weft.tensor(numbers.integers(0, 3, 2))


def _gpt(numbers: np.random.Generator) -> tuple[Any, Any, Any]:
    hidden = np.triu(np.full((_LENGTH, _LENGTH), -np.inf, np.float32), 1)
    model = transformer_model(nn, _SYMBOLS, None, [0] * _LENGTH, size=8, heads=2, layers=1,
                              hidden=8)
    # As buffers, they move with the model.
    model.register_buffer("hidden", weft.tensor(hidden))
    model.register_buffer("places", weft.arange(_LENGTH))

    def forward(x: Any) -> Any:
        states = model.embedding(x) + model.position(model.places).unsqueeze(1)
        states = model.norm(model.layers(states, mask=model.hidden))
        return model.head(states.reshape((-1, 8)))

    model.forward = forward
    text = numbers.integers(0, _SYMBOLS, (_LENGTH + 1, 2))
    return model, weft.tensor(text[:-1]), weft.tensor(text[1:].reshape(-1))
