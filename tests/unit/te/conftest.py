"""Running a schedule with the slow evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from weft import te
from weft.te.schedule import Schedule
from weft.tir.eval import evaluate

Run = Callable[..., list[np.ndarray]]


def run_schedule(
    schedule: Schedule, args: Sequence[te.Tensor], inputs: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The outputs of the lowered schedule; uninitialised memory is poison to the evaluator."""
    func = te.lower(schedule, args)
    outputs = [
        np.zeros(t.static_shape or (), t.dtype.numpy) for t in list(args)[len(inputs):]
    ]
    evaluate(func, *inputs, *outputs)
    return outputs


@pytest.fixture(scope="session")
def run() -> Run:
    return run_schedule


@pytest.fixture(scope="session")
def random() -> Callable[..., np.ndarray]:
    rng = np.random.default_rng(7)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)
