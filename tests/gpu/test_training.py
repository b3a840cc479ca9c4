"""The trainings of ``tests/unit/eager/test_device_training.py`` on a GPU: ``pytest -m gpu``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import weft
from tests.gpu.hardware import missing
from tests.unit.eager.device_training import MODELS, losses

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(missing()), reason=missing() or "a GPU")]


@pytest.fixture(autouse=True)
def _on_hardware() -> Iterator[None]:
    with weft.config(cuda="driver"):
        yield


@pytest.mark.parametrize("is_compiled", [True, False], ids=["compiled", "eager"])
@pytest.mark.parametrize("name", MODELS)
def test_models_train_to_the_losses_of_the_cpu(name: str, is_compiled: bool) -> None:
    found = losses(name, "cuda", is_compiled=is_compiled)
    np.testing.assert_allclose(found, losses(name, "cpu"), rtol=1e-3)


def test_memory_is_counted_and_kept() -> None:
    memory = weft.device("cuda:0").memory
    before = memory.statistics().used
    x = weft.ones(1 << 20, device="cuda")
    assert x.sum().item() == 1 << 20
    assert memory.statistics().used > before
    assert memory.statistics().peak >= memory.statistics().used
