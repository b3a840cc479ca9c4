"""PyTorch's own samples on weft's tensors; ``python -m tests.torch.opinfo_eager`` runs ten each."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# Below this the number of names that exist shall not fall.
NAMES = 580
# Functions of arithmetic, reduction, order, indices, assembly and random numbers.
CHOSEN = ("add", "clamp", "logaddexp", "pow", "var", "median", "quantile", "cummax", "mode",
          "searchsorted", "gather", "scatter", "hstack", "tensordot", "isclose", "max.binary",
          "index_put", "scatter_reduce.amax", "masked.std", "as_strided", "linspace", "new_full",
          "multinomial", "nan_to_num", "diff", "cross", "unique")


@pytest.mark.filterwarnings("ignore")
def test_names_exist():
    from tests.torch.opinfo_eager import exists, names

    assert sum(any(map(exists, ops)) for ops in names().values()) >= NAMES


@pytest.mark.sample(0.25)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CHOSEN)
def test_samples(name):
    from tests.torch.opinfo_eager import CONFIGURATIONS, run_operator

    for dtype, gradients in CONFIGURATIONS:
        outcome = run_operator(name, dtype, 4, gradients=gradients)
        failed = {kind: text for kind, text in outcome.details.items() if kind != "complex"}
        assert failed == {}, (name, dtype)
