"""A training run that stops and continues gives the numbers of one that does not, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import nn, optim
from weft.checkpoints import load_checkpoint, save_checkpoint
from weft.data import ArrayDataset, DataLoader

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.normal(size=(20, 5)).astype(np.float32)
CLASSES = RANDOM.integers(0, 3, 20)


class Run:
    """A model with dropout and running averages, an optimiser with state, a shuffled loader."""

    def __init__(self, seed: int) -> None:
        weft.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.2),
                                   nn.Linear(8, 3))
        self.optimizer = optim.Adam(self.model.parameters(), lr=1e-2)
        self.loader = DataLoader(ArrayDataset(ROWS, CLASSES), 8, shuffle=True, seed=seed,
                                 tensors=True)
        self.step = weft.train_step(self._step)
        self.batches = iter(self.loader)

    def _step(self, x, y):
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss

    def steps(self, count: int) -> list[float]:
        losses = []
        while len(losses) < count:
            batch = next(self.batches, None)
            if batch is None:
                self.batches = iter(self.loader)
            elif len(batch[0]) == 8:  # one shape, one program
                losses.append(self.step(*batch).item())
        return losses

    def parts(self):
        return {"model": self.model, "optimizer": self.optimizer, "loader": self.loader}


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(tmp_path):
    run = Run(0)
    run.steps(3)
    save_checkpoint(tmp_path, 3, **run.parts(), random=weft.get_rng_state())
    expected = run.steps(4)

    other = Run(1)
    other.steps(1)
    found = load_checkpoint(tmp_path, **other.parts())
    weft.set_rng_state(found.state["random"])
    other.batches = iter(other.loader)
    assert other.steps(4) == expected
    for (name, own), (_, wanted) in zip(other.model.state_dict().items(),
                                        run.model.state_dict().items(), strict=True):
        assert own.numpy().tobytes() == wanted.numpy().tobytes(), name
