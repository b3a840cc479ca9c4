"""``Constraint``: which tokens may follow, decided while a sequence is generated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from weft.support.errors import WeftError


class Constraint(Protocol):
    """Changes the logits of one sequence before a token is chosen, and hears of the choice.

    ``weft.generate(..., constraint=f)`` calls ``f()`` for the constraint of each prompt.
    ``failure`` says why a sequence has ended before it was whole.
    """

    failure: WeftError | None

    def process(self, logits: np.ndarray) -> np.ndarray:
        """Logits, float32 [vocab], in which tokens that may not follow are minus infinity."""
        ...

    def accept(self, token: int) -> bool:
        """Note the next token of the sequence; whether the sequence ends with it."""
        ...


MakeConstraint: TypeAlias = "Callable[[], Constraint]"


def constrained(logits: np.ndarray, constraints: Sequence[Constraint | None]) -> np.ndarray:
    """Logits [rows, vocab] after the constraint of each row."""
    if not any(constraints):
        return logits
    return np.stack([row if constraint is None else constraint.process(row)
                     for row, constraint in zip(logits, constraints, strict=True)])
