"""Functions of JAX give through weft what they give through XLA, in both precisions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

jax = pytest.importorskip("jax")

from tests.unit.frontend.stablehlo.jax_functions import functions  # noqa: E402 - it needs jax


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("wide", [False, True], ids=["32 bits", "64 bits"])
@pytest.mark.parametrize(("function", "arguments"), [
    pytest.param(function, arguments, id=name) for name, function, arguments in functions()])
def test_a_function(function: Callable[..., Any], arguments: tuple[Any, ...], wide: bool) -> None:
    with jax.enable_x64(wide):
        given = [np.asarray(jax.numpy.asarray(x)) for x in arguments]
        wanted = [np.asarray(x) for x in jax.tree.leaves(jax.jit(function)(*given))]
        module = weft.compile(function, example_inputs=tuple(given))
    found = module(*given)
    for got, right in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert (got.shape, got.dtype) == (right.shape, right.dtype)
        if right.dtype.kind != "f":
            np.testing.assert_array_equal(got, right)
            continue
        bound = 1e-9 if right.dtype == np.float64 else 3e-5
        size = np.abs(np.nan_to_num(right, posinf=0, neginf=0)).max(initial=1)
        np.testing.assert_allclose(got, right, rtol=bound, atol=bound * size)
