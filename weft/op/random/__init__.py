"""Random operators: each takes a key, and returns the next key with its random numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.op.random.distributions import (
        MultinomialAttrs,
        NormalAttrs,
        RandintAttrs,
        bernoulli,
        multinomial,
        normal,
        randint,
        uniform,
    )
    from weft.op.random.dropout import RandomDropoutAttrs, dropout
    from weft.op.random.threefry import (
        ThreefryGenerateAttrs,
        threefry_generate,
        threefry_key,
        threefry_split,
    )
else:
    load_names_lazily(__name__, NAMES[__name__])

__all__ = [
    "MultinomialAttrs",
    "NormalAttrs",
    "RandintAttrs",
    "RandomDropoutAttrs",
    "ThreefryGenerateAttrs",
    "bernoulli",
    "dropout",
    "multinomial",
    "normal",
    "randint",
    "threefry_generate",
    "threefry_key",
    "threefry_split",
    "uniform",
]
