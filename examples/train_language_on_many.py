"""Train the transformer of ``examples.train.language`` on several ranks.

Each rank has a stage of the model (``pipeline``), or a part of each feed-forward layer
(``tensor``):

    python -m weft.distributed.run -n 2 -m examples.train_language_on_many --parallel tensor
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import weft
from examples.train import models
from examples.train.language import batches_of, read_text, words
from weft import nn, optim
from weft.distributed import (
    ColumnParallelLinear,
    Communicator,
    Pipeline,
    RowParallelLinear,
    init,
)

LAYERS, SIZE = 2, 32


class Stage(nn.Module):
    """Some layers of the transformer; the first takes words (N, length), the last gives logits."""

    def __init__(self, whole: Any, layers: range, mask: Any, positions: Any) -> None:
        super().__init__()
        self.embedding = whole.embedding if layers.start == 0 else None
        self.position = whole.position if layers.start == 0 else None
        self.layers = nn.ModuleList([whole.layers.layers[i] for i in layers])
        is_last = layers.stop == LAYERS
        self.norm, self.head = (whole.norm, whole.head) if is_last else (None, None)
        self._mask, self._positions = mask, positions

    def forward(self, x: Any) -> Any:
        if self.embedding is not None:
            x = self.embedding(x.transpose(0, 1)) + self.position(self._positions).unsqueeze(1)
        for layer in self.layers:
            x = layer(x, src_mask=self._mask)
        return x if self.head is None else self.head(self.norm(x))


def loss_of(logits: Any, targets: Any) -> Any:
    """The cross-entropy of words (N, length), of which the logits are (length, N, words)."""
    symbols = logits.shape[-1]
    return nn.functional.cross_entropy(logits.reshape((-1, symbols)),
                                       targets.transpose(0, 1).reshape((-1,)))


def cut_layers(whole: Any, group: Communicator) -> None:
    """Let each rank have a part of the feed-forward layers."""
    for layer in whole.layers.layers:
        layer.linear1 = ColumnParallelLinear(layer.linear1, group)
        layer.linear2 = RowParallelLinear(layer.linear2, group)


def main(argv: list[str] | None = None) -> list[float | None]:
    """Train, and print the losses of all steps as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parallel", choices=("pipeline", "tensor"), default="pipeline")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--micro-batches", type=int, default=4)
    options = parser.parse_args(argv)
    world, length = init(), options.length
    numbers, symbols = words(read_text())
    weft.manual_seed(0)
    mask = weft.tensor(np.triu(np.full((length, length), -np.inf, np.float32), 1))
    positions = weft.tensor(np.arange(length))
    whole = models.transformer_model(nn, symbols, mask, positions, size=SIZE, layers=LAYERS)
    layers = range(LAYERS)
    if options.parallel == "tensor":
        cut_layers(whole, world)
    else:
        layers = range(world.rank * LAYERS // world.size, (world.rank + 1) * LAYERS // world.size)
    stage = Stage(whole, layers, mask, positions)
    optimizer = optim.Adam(stage.parameters(), lr=3e-3)
    pipeline = Pipeline(stage, options.micro_batches, loss_of)
    losses: list[float | None] = []
    for _, (x, y) in zip(range(options.steps),
                         batches_of(numbers, options.batch_size, length), strict=False):
        rows = np.asarray(x).T, np.asarray(y).reshape(length, -1).T
        optimizer.zero_grad()
        if options.parallel == "tensor":
            loss = loss_of(stage(weft.tensor(rows[0])), weft.tensor(rows[1]))
            loss.backward()
            losses.append(loss.item())
        else:
            losses.append(pipeline.step(*rows))
        optimizer.step()
    if world.rank == world.size - 1:
        print(json.dumps(losses), flush=True)
    return losses


if __name__ == "__main__":
    main()
