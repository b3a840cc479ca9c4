"""Random edits of models, optimisers and Python values between the calls of a compiled step.

The loop without the compiler says what each call gives, to the bit. A sample of edits runs here;
``WEFT_FUZZ_EDITS=500`` runs as many. Numbers of Python that the loss is multiplied with are powers
of two: the loop takes numbers that change as inputs, the step has them as constants, whose product
the compiler may form first.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn, optim

EDITS = int(os.environ.get("WEFT_FUZZ_EDITS", "12"))
WORLDS = max(2, EDITS // 25)
Edit = Callable[["World"], Any]

OPTIMIZERS: list[Callable[[Any], optim.Optimizer]] = [
    lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    lambda p: optim.SGD(p, lr=0.05, dampening=0.1, momentum=0.5, weight_decay=0.01),
    lambda p: optim.Adam(p, lr=0.01),
    lambda p: optim.AdamW(p, lr=0.01),
    lambda p: optim.RMSprop(p, lr=0.01, momentum=0.1),
    lambda p: optim.Lion(p, lr=0.01),
    lambda p: optim.Adagrad(p, lr=0.05),
    lambda p: optim.NAdam(p, lr=0.01),
]


class Options:
    """Python values that the step reads."""

    gain = 1.0  # of the class, until an instance hides it

    def __init__(self) -> None:
        self.clip: float | None = None
        self.scale: float = 1.0
        self.weights = [1.0, 0.5]
        self.table = {"square": True, "power": 2}


class World:
    """A model, an optimiser, a schedule and options, and the step that they make."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        weft.manual_seed(seed)
        layers: list[Any] = [nn.Linear(4, 6), rng.choice([nn.ReLU, nn.Tanh, nn.SiLU])(),
                             nn.Dropout(0.25), nn.Linear(6, 3)]
        if rng.random() < 0.5:
            layers.insert(1, nn.BatchNorm1d(6))
        self.model = nn.Sequential(*layers)
        self.optimizer = OPTIMIZERS[seed % len(OPTIMIZERS)](list(self.model.parameters()))
        self.schedule = optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.options = Options()
        self.handles: list[Any] = []
        self.step = self.made_step()

    def made_step(self) -> Callable[..., Any]:
        model, optimizer, options = self.model, self.optimizer, self.options

        def loss_of(x: Any, y: Any) -> Any:
            error = model(x) - y
            powers = error ** options.table["power"] if options.table["square"] else error.abs()
            return math.prod(options.weights, start=powers.mean())

        def step(x: Any, y: Any) -> Any:
            optimizer.zero_grad()
            loss = loss_of(x, y) * options.scale * options.gain
            if loss.requires_grad:
                loss.backward()
                if options.clip is not None:
                    nn.utils.clip_grad_norm_(model.parameters(), options.clip)
                optimizer.step()
            return loss

        return step


def _option(name: str, value: Any) -> Edit:
    def edit(world: World) -> None:
        for group in world.optimizer.param_groups:
            if name in group:
                group[name] = value
    return edit


def _set(name: str, value: Any) -> Edit:
    return lambda world: setattr(world.options, name, value)


def _layer(kind: type, change: Callable[[Any], Any]) -> Edit:
    return lambda world: [change(m) for m in world.model if isinstance(m, kind)]


def _freeze(number: int, on: bool) -> Edit:
    return lambda world: list(world.model.parameters())[number].requires_grad_(on)


def _hook(world: World) -> None:
    world.handles.append(world.model[0].register_forward_hook(lambda _m, _a, out: out * 0.5))


def _gradient_hook(world: World) -> None:
    weight = world.model[0].weight
    if weight.requires_grad:
        world.handles.append(weight.register_hook(lambda gradient: gradient * 2))


def _unhook(world: World) -> None:
    while world.handles:
        world.handles.pop().remove()


def _swap(kind: type) -> Edit:
    def edit(world: World) -> None:
        world.model[len(world.model) - 3] = kind()
    return edit


def _write(world: World) -> None:
    with weft.no_grad():
        world.model[0].weight.mul_(0.5)


def _reload(world: World) -> None:
    world.optimizer.load_state_dict(world.optimizer.state_dict())
    world.model.load_state_dict(world.model.state_dict())


CHOICES: list[Edit] = [
    lambda world: world.model.eval(), lambda world: world.model.train(),
    lambda world: world.model.train(), lambda world: world.model[2].eval(),
    _freeze(0, False), _freeze(1, False), _freeze(0, True), _freeze(1, True),
    *[_option(*o) for o in (
        ("lr", 0.02), ("weight_decay", 0.1), ("weight_decay", 0.2), ("weight_decay", 0),
        ("momentum", 0.7), ("momentum", 0), ("betas", (0.8, 0.9)), ("betas", (0.7, 0.95)),
        ("eps", 1e-4), ("dampening", 0.3), ("alpha", 0.8), ("amsgrad", True), ("amsgrad", False),
        ("maximize", True), ("maximize", False), ("nesterov", True), ("centered", True),
        ("momentum_decay", 0.01), ("lr_decay", 0.1))],
    lambda world: world.schedule.step(),
    _layer(nn.Dropout, lambda m: setattr(m, "p", 0.5)),
    _layer(nn.Dropout, lambda m: setattr(m, "p", 0)),
    _layer(nn.BatchNorm1d, lambda m: setattr(m, "momentum", 0.3)),
    _layer(nn.BatchNorm1d, lambda m: setattr(m, "momentum", None)),
    _layer(nn.BatchNorm1d, lambda m: setattr(m, "eps", 1e-2)),
    _set("clip", 0.1), _set("clip", 0.2), _set("clip", None), _set("scale", 2), _set("scale", 2.0),
    _set("scale", 0.5), _set("gain", 4.0), lambda world: world.options.__dict__.pop("gain", None),
    lambda world: world.options.weights.append(0.25), lambda world: world.options.weights.reverse(),
    lambda world: world.options.weights.__setitem__(0, 2.0),
    lambda world: setattr(world.options, "weights", [1.0]),
    lambda world: world.options.table.update(square=False),
    lambda world: world.options.table.update(square=True, power=4),
    _hook, _gradient_hook, _unhook, _unhook, _swap(nn.ReLU), _swap(nn.Sigmoid), _write, _reload,
]


def run(world: World, edits: list[int], call: Callable[..., Any]) -> list[np.ndarray]:
    """The losses, the parameters and the buffers after each edit and step."""
    rng, found = np.random.default_rng(1), []
    for number, edit in enumerate([-1, *edits]):
        if edit >= 0:
            CHOICES[edit](world)
        x, y = (weft.tensor(rng.normal(size=(5, n)).astype(np.float32)) for n in (4, 3))
        with weft.no_grad() if number % 7 == 6 else nullcontext():
            loss = call(x, y)
        # Gradients that are looked at later would be results of the program of the loop, too, in
        # which other multiplications and additions are then contracted.
        world.optimizer.zero_grad()
        found.append(loss.detach().numpy())
        found += [t.detach().numpy().copy() for t in world.model.state_dict().values()]
    return found


@pytest.mark.parametrize("seed", range(WORLDS))
def test_a_compiled_step_follows_edits_like_the_loop(seed: int) -> None:
    rng = random.Random(1000 + seed)
    edits = [rng.randrange(len(CHOICES)) for _ in range(EDITS // WORLDS)]
    plain = World(seed)
    expected = run(plain, edits, plain.step)
    world = World(seed)
    compiled = weft.train_step(world.step)
    found = run(world, edits, compiled)
    assert len(found) == len(expected)
    for number, (a, b) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(a, b, err_msg=f"value {number}\n{compiled.explain()}")
