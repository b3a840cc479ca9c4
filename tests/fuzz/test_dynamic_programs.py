"""Random programs with symbolic sizes at sizes 0, 1, 2, primes and large ones.

A program is compiled once for all sizes. At each size it gives what the program for that size gives
in the reference interpreter, at one of them also what the compiled program for it gives, and it
refuses what that one refuses. ``WEFT_FUZZ_EXAMPLES=5000`` runs that many programs instead of a few.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import weft
from tests.fuzz.dynamic_programs import draw_program
from weft.ir.module import IRModule
from weft.ir.substitution import substitute_symbols
from weft.ir.symbol import size_of_dim
from weft.runtime.sizes import evaluate as size_at
from weft.support.errors import WeftError
from weft.support.fallback import FallbackWarning
from weft.transform import evaluate
from weft.transform.analysis.graph import type_of

EXAMPLES = int(os.environ.get("WEFT_FUZZ_EXAMPLES", "8"))
FIRST = int(os.environ.get("WEFT_FUZZ_SEED", "0"))
BATCH = 8
SIZES = ((0, 3), (3, 0), (0, 0), (1, 1), (1, 5), (2, 1), (2, 2), (7, 3), (5, 13), (97, 31))
# Of the programs, so many are compiled for all sizes.
MIN_SHARE = 0.6


def feeds(module: IRModule, sizes: Mapping[str, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(-1, 1, [size_at(size_of_dim(dim), sizes) for dim in type_of(p).shape])
            .astype(np.float32) for p in module["main"].params]


def expected_at(module: IRModule, sizes: Mapping[str, int], arrays: Sequence[np.ndarray]
                ) -> tuple[IRModule, list[np.ndarray]] | None:
    """The program for these sizes and its results; ``None`` if it is refused."""
    try:
        fixed = substitute_symbols(module, sizes)
    except WeftError:
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = evaluate(fixed, list(arrays))
    return fixed, list(found) if isinstance(found, tuple) else [found]


def check_equal(found: object, wanted: Sequence[np.ndarray], where: str) -> None:
    results = found if isinstance(found, tuple) else (found,)
    for mine, theirs in zip(results, wanted, strict=True):
        assert np.shape(mine) == theirs.shape, where
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5, err_msg=where)


def compared(seed: int) -> bool:
    """Whether the program of a seed is compiled for all sizes; fails where results differ."""
    module = draw_program(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        model = weft.compile(module)
    if not model.is_dynamic or model.general is None:
        return False
    rng = random.Random(seed)
    drawn = rng.sample(SIZES, 6)
    for pair in drawn:
        sizes = dict(zip("nm", pair, strict=True))
        arrays, where = feeds(module, sizes), f"seed {seed}, {sizes}\n{module}"
        wanted = expected_at(module, sizes, arrays)
        if wanted is None:
            with pytest.raises(WeftError):
                pytest.fail(f"{len(model(*arrays))} results of sizes that are refused\n{where}")
            continue
        check_equal(model(*arrays), wanted[1], where)
        if pair == drawn[0]:
            check_equal(weft.compile(wanted[0])(*arrays), wanted[1], where)
    return True


@pytest.mark.parametrize("first", range(FIRST, FIRST + EXAMPLES, BATCH))
def test_programs_for_all_sizes(first: int) -> None:
    general = [compared(seed) for seed in range(first, first + BATCH)]
    assert sum(general) >= MIN_SHARE * BATCH
