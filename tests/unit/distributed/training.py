"""Small models, their data, and what one rank computes from all parts of a batch."""

import contextlib

import numpy as np

import weft
from weft import nn
from weft.distributed import DataParallel

STEPS = 4
BUCKET = 1 << 10


class Transformer(nn.Module):
    """A block of attention over tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        return self.head(self.block(self.embedding(tokens))).mean(1)


def network(kind, seed=0):
    weft.manual_seed(seed)
    if kind == "cnn":
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 16),
                             nn.ReLU(), nn.Linear(16, 11))
    return Transformer()


def batch(kind, step, size=8):
    rng = np.random.default_rng(step)
    x = rng.standard_normal((size, 1, 8, 8)).astype(np.float32) if kind == "cnn" \
        else rng.integers(0, 11, (size, 5))
    return x, rng.integers(0, 11, size)


def loss_of(model, x, y):
    return nn.functional.cross_entropy(model(weft.tensor(x)), weft.tensor(y))


def values(model):
    return {name: p.detach().numpy().copy() for name, p in model.named_parameters()}


def one_rank(kind, make_optimizer, parts, steps=STEPS):
    """The losses and parameters of one rank that accumulates the gradients of ``parts`` parts."""
    model = network(kind)
    alone = DataParallel(model, bucket_bytes=BUCKET)
    optimizer = make_optimizer(model.parameters())
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch(kind, step)
        found = []
        for part in range(parts):
            rows = slice(part * len(x) // parts, (part + 1) * len(x) // parts)
            with alone.no_sync() if part < parts - 1 else contextlib.nullcontext():
                loss = loss_of(alone, x[rows], y[rows])
                loss.backward()
            found.append(loss.item())
        for p in model.parameters():
            p.grad = weft.tensor(p.grad.numpy() / np.float32(parts))
        optimizer.step()
        losses.append(sum(found) / parts)
    return losses, values(model)


def share(world, array):
    return np.split(array, world.size)[world.rank]
