"""Thousands of random placements over two to four simulated devices equal the plain run.

``WEFT_FUZZ_EXAMPLES=20000`` makes that many with a new seed, in some ten minutes; placements share
the kernels of their program, so each costs some 20 milliseconds.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

import weft
from tests.unit.compiler.devices.graphs import random_graph
from tests.unit.compiler.devices.placing import compiled_at_random, within
from weft.support.errors import TargetError

pytestmark = pytest.mark.usefixtures("cache_of_module")

EXAMPLES = os.environ.get("WEFT_FUZZ_EXAMPLES")
COUNT = int(EXAMPLES or 24)
OF_ONE_PROGRAM = 8 if EXAMPLES is None else 40
SIZE = 4


def test_random_placements_equal_the_plain_run():
    seed = int.from_bytes(os.urandom(4)) if EXAMPLES else 0
    values = list(np.random.default_rng(0).standard_normal((2, SIZE, SIZE)).astype(np.float32))
    refused = 0
    for first in range(seed, seed + COUNT, OF_ONE_PROGRAM):
        text = random_graph(random.Random(first), SIZE)
        model, opt_level = weft.parse(text), (0, 3)[first // OF_ONE_PROGRAM % 2]
        try:
            plain = weft.compile(model, opt_level=opt_level)
        except TargetError:  # annotations may contradict each other
            refused += 1
            continue
        expected = {flag: _flat(plain(*values, flag)) for flag in (np.True_, np.False_)}
        for number in range(first, min(first + OF_ONE_PROGRAM, seed + COUNT)):
            mod = compiled_at_random(model, 2 + number % 3, number, opt_level=opt_level)
            for flag, wanted in expected.items():
                found = _flat(within(60, lambda mod=mod, flag=flag: mod(*values, flag)))
                same = [a.tobytes() == b.tobytes() for a, b in zip(found, wanted, strict=True)]
                assert all(same), f"seed {number} of\n{text}\n{same}"
    assert refused * OF_ONE_PROGRAM <= 0.2 * COUNT


def _flat(results):
    return [np.asarray(one) for one in (results if isinstance(results, tuple) else (results,))]
