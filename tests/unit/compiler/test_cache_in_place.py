"""Updates of key and value caches are written over the cache at its last use."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.runtime.executable import Executable
from weft.transform.analysis.reference import evaluate

CACHE = "Tensor[(2, 3, 64, 16), float32]"
CONTIGUOUS = f"""
def @main(%x: {CACHE}, %new: Tensor[(2, 3, 2, 16), float32], %start: Tensor[(2), int64]) {{
  let %cache = nn.softmax(%x);
  let %first = nn.cache_update(%cache, %new, %start);
  let %second = nn.cache_update(%first, %new, add(%start, 30i64));
  nn.softmax(RESULT)
}}"""
PAGED = f"""
def @main(%x: {CACHE}, %new: Tensor[(1, 3, 70, 16), float32], %start: Tensor[(1), int64]) {{
  let %cache = nn.softmax(%x);
  let %table = reshape(multiply(%start, 0i64), newshape=[1, 1]);
  let %blocks = concatenate((add(%table, 1i64), %table), axis=1);
  nn.softmax(nn.paged_cache_update(%cache, %new, %start, %blocks))
}}"""


def in_place(mod: Executable) -> list[bool]:
    """Whether each update writes its result over its cache."""
    return [step.args[-1] == step.args[0] for step in mod.manifest.steps if "update" in step.op]


def checked(text: str, starts: list[int]) -> Executable:
    program = weft.parse(text)
    mod = weft.compile(program)
    rng = np.random.default_rng(0)
    for start in starts:
        inputs = [rng.standard_normal(spec.shape).astype(np.float32) for spec in mod.inputs[:2]]
        inputs.append(np.full(mod.inputs[2].shape, start))
        np.testing.assert_allclose(mod(*inputs), evaluate(program, inputs), 1e-5, 1e-6)
    return mod


def test_updates_take_the_memory_of_the_cache() -> None:
    granted = in_place(checked(CONTIGUOUS.replace("RESULT", "%second"), [0, 5, 63, -1]))
    assert granted == [True, True]


def test_a_cache_that_is_used_again_stays() -> None:
    mod = checked(CONTIGUOUS.replace("RESULT", "add(%second, %cache)"), [0, 31])
    assert in_place(mod) == [False, True]


@pytest.mark.parametrize("start", [0, 60])
def test_blocks(start: int) -> None:
    assert in_place(checked(PAGED, [start])) == [True]
