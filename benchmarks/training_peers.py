"""Training steps of each peer over the same weights and batches: functions from arrays to a loss.

Each has the settings that make it fastest: torch gets images in channels-last and an optimiser of
one kernel (``fused``), Inductor compiles its optimiser too, as weft and JAX do with the whole step.

``step_of(peer, model, batch)`` gives a function that makes one step of SGD with momentum. "weft
eager" makes it without ``weft.train_step``. JAX has the models that are written for it here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks import training_models as models

PEERS = ("weft", "torch+weft", "torch", "inductor", "jax")
EAGER = "weft eager"
RATE, MOMENTUM = 0.001, 0.9
Step = Callable[[], float]


class SkippedError(Exception):
    """The reason why a peer does not run."""


def batch_of(model: str, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and classes of a model, the same for every peer."""
    random = np.random.default_rng(0)
    if model == "mlp":
        return random.normal(size=(size, 784)).astype(np.float32), random.integers(0, 10, size)
    if model.startswith("resnet"):
        side = 64 if model == "resnet18" else 32
        images = random.normal(size=(size, 3, side, side)).astype(np.float32)
        return images, random.integers(0, 10, size)
    words = random.integers(0, models.VOCABULARY, (size, models.LENGTH + 1))
    return np.ascontiguousarray(words[:, :-1]), np.ascontiguousarray(words[:, 1:])


def torch_model(model: str) -> Any:
    """The module of torch in training mode, with the same weights every time."""
    import torch

    torch.manual_seed(0)
    return models.MODELS[model](torch.nn).train()


def step_of(peer: str, model: str, size: int, threads: int) -> Step:
    """One training step. Raises ``SkippedError`` with the reason if the peer cannot."""
    if peer in ("weft", EAGER):
        return _weft(model, size, compiled=peer == "weft")
    if peer == "jax":
        return _jax(model, size)
    return _torch(peer, model, size, threads)


def _torch(peer: str, name: str, size: int, threads: int) -> Step:
    import shutil

    import torch

    torch.set_num_threads(threads)
    torch._dynamo.config.allow_rnn = True  # noqa: SLF001 - torch documents it under this name
    model = torch_model(name)
    x, y = (torch.from_numpy(a) for a in batch_of(name, size))
    if x.ndim == 4 and peer != "torch+weft":  # weft chooses layouts itself
        model, x = (a.to(memory_format=torch.channels_last) for a in (model, x))
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, fused=peer != "inductor")
    update = optimizer.step

    def loss(a: Any, b: Any) -> Any:
        return models.loss_of(torch.nn.functional, model, a, b)

    if peer == "inductor":
        if shutil.which("g++") is None:
            raise SkippedError("Inductor needs a C++ compiler")
        loss, update = torch.compile(loss), torch.compile(optimizer.step)
    elif peer == "torch+weft":
        loss = torch.compile(loss, backend="weft", options={"threads": threads})

    def step() -> float:
        optimizer.zero_grad()
        value = loss(x, y)
        value.backward()
        update()
        return value.item()

    return step


def _weft(name: str, size: int, *, compiled: bool) -> Step:
    import weft
    from weft import nn, optim

    model = models.MODELS[name](nn)
    model.load_state_dict({k: v.numpy() for k, v in torch_model(name).state_dict().items()})
    optimizer = optim.SGD(model.parameters(), RATE, MOMENTUM)
    x, y = (weft.tensor(a) for a in batch_of(name, size))

    def step(a: Any, b: Any) -> Any:
        optimizer.zero_grad()
        loss = models.loss_of(nn.functional, model, a, b)
        loss.backward()
        optimizer.step()
        return loss

    run = weft.train_step(step) if compiled else step
    return lambda: run(x, y).item()


def _jax(name: str, size: int) -> Step:
    try:
        import jax
    except ImportError:
        raise SkippedError("jax is not installed") from None
    from benchmarks.training_jax import LOSSES

    if name not in LOSSES:
        raise SkippedError("not written for JAX")
    weights = {k: jax.numpy.asarray(v.numpy()) for k, v in torch_model(name).state_dict().items()
               if v.dtype.is_floating_point and "running" not in k}
    x, y = batch_of(name, size)
    state = [weights, {k: v * 0 for k, v in weights.items()}]

    def update(given: Mapping[str, Any], moved: Mapping[str, Any], a: Any, b: Any) -> Any:
        value, slopes = jax.value_and_grad(LOSSES[name])(given, a, b)
        moved = {k: MOMENTUM * moved[k] + slopes[k] for k in given}
        return {k: given[k] - RATE * moved[k] for k in given}, moved, value

    compiled = jax.jit(update, donate_argnums=(0, 1))

    def step() -> float:
        state[0], state[1], value = compiled(*state, x, y)
        return float(value)

    return step
