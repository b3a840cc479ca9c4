"""Streamed attention: one kernel for all sizes, against the NumPy references."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from tests.unit.strategy.kernels import SMALL_CPU
from tests.unit.strategy.symbolic import SymbolicKernel, build
from weft import op
from weft.ir.expr import var
from weft.op.nn import attend_cache

HEADS, SHARED, DEPTH, WIDTH, BLOCK = 6, 2, 24, 40, 16
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16),
          "bfloat16": np.dtype(ml_dtypes.bfloat16)}
FLOAT32_TOLERANCE = 2e-5

DENSE: Mapping[str, dict[str, Any]] = {
    "all keys": {"scale": 0.3},
    "causal": {"causal": True},
    "causal with past keys": {"causal": True, "offset": 5, "undefined": "zero_if_hidden"},
    "boolean mask": {"mask": "bool", "undefined": "zero"},
    "added mask, causal": {"mask": "float32", "causal": True, "offset": 1},
    "finite fill": {"mask": "bool", "fill": -1e4, "causal": True},
}
CACHED: Mapping[str, dict[str, Any]] = {
    "contiguous": {},
    "window": {"window": 20},
    "ring": {"ring": True},
    "ring and window of bfloat16": {"ring": True, "window": 9, "dtype": "bfloat16"},
    "softcap, not causal": {"softcap": 2.0, "causal": False},
    "bias and slopes": {"extras": ("bias", "alibi_slopes")},
    "paged": {"extras": ("block_table",)},
    "paged, window, float16": {"extras": ("block_table",), "window": 30, "dtype": "float16"},
}


@functools.cache
def dense_kernel(name: str) -> SymbolicKernel:
    attrs = dict(DENSE[name])
    mask = attrs.pop("mask", None)
    q = var("q", ("b", HEADS, "l", DEPTH), "float32")
    k = var("k", ("b", SHARED, "s", DEPTH), "float32")
    v = var("v", ("b", SHARED, "s", WIDTH), "float32")
    if mask is None:
        return build(op.nn.attention(q, k, v, **attrs), [q, k, v])
    m = var("m", ("b", 1, "l", "s"), mask)
    return build(op.nn.masked_attention(q, k, v, m, **attrs), [q, k, v, m])


@functools.cache
def cached_kernel(name: str) -> SymbolicKernel:
    attrs = dict(CACHED[name])
    dtype, extras = attrs.pop("dtype", "float32"), attrs.pop("extras", ())
    blocks, capacity = ("x", BLOCK) if "block_table" in extras else ("b", "c")
    q = var("q", ("b", HEADS, "n", DEPTH), "float32")
    k = var("k", (blocks, SHARED, capacity, DEPTH), dtype)
    v = var("v", (blocks, SHARED, capacity, WIDTH), dtype)
    lengths = var("lengths", ("b",), "int64")
    types = {"bias": (("b", 1, "n", "c"), "float32"), "alibi_slopes": ((HEADS,), "float32"),
             "block_table": (("b", "t"), "int64")}
    named = {extra: var(extra, *types[extra]) for extra in extras}
    call = attend_cache(q, k, v, lengths, scale=0.2, **named, **attrs)
    return build(call, [q, k, v, lengths, *named.values()])


def numbers(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", list(DENSE))
@given(batch=st.integers(0, 2), queries=st.integers(0, 40), keys=st.integers(0, 150),
       seed=st.integers(0, 9))
@settings(max_examples=12, deadline=None)
def test_attention(name: str, batch: int, queries: int, keys: int, seed: int) -> None:
    attrs, rng = dict(DENSE[name]), np.random.default_rng(seed)
    mask = attrs.pop("mask", None)
    arrays = [numbers(rng, batch, HEADS, queries, DEPTH), numbers(rng, batch, SHARED, keys, DEPTH),
              numbers(rng, batch, SHARED, keys, WIDTH)]
    if mask is not None:
        added = numbers(rng, batch, 1, queries, keys)
        arrays.append(added > 0.3 if mask == "bool" else added)
    kernel = dense_kernel(name)
    assert kernel.implementation.endswith(".streamed")
    got = kernel.run(arrays, {"b": batch, "l": queries, "s": keys})
    expected = op.nn.attention.reference(*arrays, **attrs)
    np.testing.assert_allclose(got, expected, FLOAT32_TOLERANCE, FLOAT32_TOLERANCE)


@pytest.mark.parametrize("name", list(CACHED))
@given(batch=st.integers(0, 3), queries=st.integers(0, 40), capacity=st.integers(1, 150),
       seed=st.integers(0, 9))
@settings(max_examples=12, deadline=None)
def test_cached_attention(name: str, batch: int, queries: int, capacity: int, seed: int) -> None:
    """Slots beyond the lengths hold NaN, and blocks that do not exist are named by the table."""
    attrs, rng = dict(CACHED[name]), np.random.default_rng(seed)
    dtype, extras = DTYPES[attrs.pop("dtype", "float32")], attrs.pop("extras", ())
    is_paged, is_ring = "block_table" in extras, attrs.get("ring", False)
    blocks, entries = 9, -(-capacity // BLOCK)
    lengths = rng.integers(0, (2 if is_ring else 1) * capacity + 1, batch)
    lead = (blocks, SHARED, BLOCK) if is_paged else (batch, SHARED, capacity)
    caches = [numbers(rng, *lead, size).astype(dtype) for size in (DEPTH, WIDTH)]
    for row in range(0 if is_paged else batch):
        for cache in caches:
            cache[row, :, lengths[row]:] = np.nan
    made = {"bias": numbers(rng, batch, 1, queries, capacity),
            "alibi_slopes": abs(numbers(rng, HEADS)),
            "block_table": rng.integers(-1, blocks + 1, (batch, entries))}
    arrays = [numbers(rng, batch, HEADS, queries, DEPTH), *caches, lengths]
    given_extras = tuple(made[extra] for extra in extras)
    kernel = cached_kernel(name)
    assert kernel.implementation.endswith(".streamed")
    got = kernel.run([*arrays, *given_extras],
                     {"b": batch, "n": queries, "c": capacity, "x": blocks, "t": entries})
    expected = op.nn.cached_attention.reference(
        *arrays, given_extras, extras=extras, scale=0.2, **attrs)
    np.testing.assert_allclose(got, expected, FLOAT32_TOLERANCE, FLOAT32_TOLERANCE)


def test_other_widths_of_vectors() -> None:
    """The kernel of a CPU without AVX-512, of one query and a depth below a vector."""
    q, k = var("q", ("b", 2, 1, 5), "float32"), var("k", ("b", 2, "s", 5), "float32")
    rng = np.random.default_rng(0)
    arrays = [numbers(rng, 3, 2, 1, 5), *(numbers(rng, 3, 2, 77, 5) for _ in range(2))]
    v = var("v", ("b", 2, "s", 5), "float32")
    got = build(op.nn.attention(q, k, v), [q, k, v], SMALL_CPU).run(arrays, {"b": 3, "s": 77})
    np.testing.assert_allclose(got, op.nn.attention.reference(*arrays), FLOAT32_TOLERANCE,
                               FLOAT32_TOLERANCE)


def test_bits_do_not_depend_on_threads() -> None:
    """Nor on the capacity of the caches, of which the lengths alone are read."""
    program = """
def @main(%q: Tensor[(2, 6, 5, 16), float32], %k: Tensor[(2, 2, {0}, 16), float32],
          %v: Tensor[(2, 2, {0}, 16), float32], %i: Tensor[(2), int64]) {{
  nn.cached_attention(%q, %k, %v, %i, (), scale=0.25)
}}"""
    rng = np.random.default_rng(0)
    query, key, value = numbers(rng, 2, 6, 5, 16), *(numbers(rng, 2, 2, 200, 16) for _ in "kv")
    results = []
    for capacity in (200, 120):
        mod = weft.compile(weft.parse(program.format(capacity)))
        caches = (np.ascontiguousarray(x[:, :, :capacity]) for x in (key, value))
        arrays = [query, *caches, np.array([117, 64])]
        for threads in (1, 2, 3):
            with weft.config(threads=threads):
                results.append(mod(*arrays))
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
