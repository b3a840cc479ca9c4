"""Random numbers for layers and initial values, from the default generator unless one is given."""

from __future__ import annotations

from typing import Any

from weft.eager.dtypes import as_dtype
from weft.eager.functions import random as drawn
from weft.eager.functions.random import Generator
from weft.eager.record import as_node, wrap
from weft.eager.tensor import Tensor


def uniform(
    shape: tuple[int, ...], low: float, high: float, d: Any, generator: Generator | None = None
) -> Tensor:
    """Numbers uniformly distributed between ``low`` and ``high``."""
    return wrap(drawn.uniform(shape, low, high, as_dtype(d), generator))


def normal(
    shape: tuple[int, ...], mean: float, std: float, d: Any, generator: Generator | None = None
) -> Tensor:
    """Normally distributed numbers."""
    return wrap(drawn.normal_node(shape, mean, std, as_dtype(d), generator))


def dropped(x: Tensor, p: float) -> Tensor:
    """``x`` with elements zeroed with probability ``p``, and the others divided by 1 - p."""
    return wrap(drawn.current_generator().draw("random.dropout", as_node(x), rate=float(p)))
