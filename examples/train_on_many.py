"""Train a small CNN on the handwritten digits of scikit-learn, on several ranks.

python -m weft.distributed.run -n 2 -m examples.train_on_many --epochs 3
"""

from __future__ import annotations

import argparse

import numpy as np

import weft
from examples.train.digits import load_digits
from weft import nn, optim
from weft.distributed import DataParallel, ZeroOptimizer, init


def main(argv: list[str] | None = None) -> None:
    """Train, and print the loss of each epoch and the accuracy on other images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="stop after so many steps")
    parser.add_argument("--batch-size", type=int, default=60, help="of all ranks together")
    options = parser.parse_args(argv)
    world = init()
    x, y, x_test, y_test = load_digits()
    weft.manual_seed(0)
    model = DataParallel(nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)))
    optimizer = ZeroOptimizer(model, lambda p: optim.AdamW(p, lr=0.01))
    order = np.random.default_rng(0)
    steps = 0
    for epoch in range(options.epochs):
        losses = []
        for rows in np.split(order.permutation(len(x)), len(x) // options.batch_size):
            own = np.array_split(rows, world.size)[world.rank]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(weft.tensor(x[own])), weft.tensor(y[own]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            steps += 1
            if steps == options.steps:
                break
        mean = world.all_reduce(np.array([np.mean(losses)]))[0] / world.size
        if world.rank == 0:
            print(f"epoch {epoch}: loss {mean:.3f}")
    if world.rank == 0:
        with weft.no_grad():
            found = model.module(weft.tensor(x_test)).argmax(1).numpy()
        print(f"accuracy on {len(y_test)} test images: {(found == y_test).mean():.3f}")


if __name__ == "__main__":
    main()
