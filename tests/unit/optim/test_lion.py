"""Lion against its paper (Chen et al. 2023, algorithm 2), written in NumPy."""

from __future__ import annotations

import numpy as np

import weft
from weft import optim


def test_steps_are_those_of_the_paper() -> None:
    random = np.random.default_rng(0)
    start = random.standard_normal((3, 4)).astype(np.float32)
    gradients = random.standard_normal((5, 3, 4)).astype(np.float32)
    parameter = weft.nn.Parameter(weft.tensor(start))
    optimizer = optim.Lion([parameter], lr=0.01, betas=(0.9, 0.99), weight_decay=0.1)
    value, momentum = start.astype(np.float64), np.zeros((3, 4))
    for gradient in gradients:
        optimizer.zero_grad()
        (parameter * weft.tensor(gradient)).sum().backward()
        optimizer.step()
        update = np.sign(0.9 * momentum + 0.1 * gradient)
        value = value - 0.01 * (update + 0.1 * value)
        momentum = 0.99 * momentum + 0.01 * gradient
    np.testing.assert_allclose(parameter.detach().numpy(), value, rtol=1e-5, atol=1e-6)
