"""Small transformers models with random weights, the same in each run.

Without transformers the tests of a file that imports this one are skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def seeded(model: str, config: str, sizes: Mapping[str, Any], *, matrices: float = 4,
           embeddings: float | None = None) -> Any:
    """A model in evaluation mode, whose norms and biases are random too.

    Matrices and embeddings are multiplied by these factors: with those of the library's
    initialisation the logits would be close to each other, and models would repeat one token.
    """
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape))
            elif embeddings is not None and ("shared" in name or "embed_tokens" in name):
                parameter.mul_(embeddings)
            else:
                parameter.mul_(matrices)
    return made.eval()
