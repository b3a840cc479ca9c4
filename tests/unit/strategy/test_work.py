"""The bytes and operations that profiles count for a kernel."""

from __future__ import annotations

import pytest

import weft

CASES = [
    # what is computed, and the bytes that it reads and writes
    ("take(%t, %i, axis=0)", (5 * 64) * 4 * 2 + 5 * 8),
    ("strided_slice(%t, begin=(0, 0), end=(10, 64))", 10 * 64 * 4 * 2),
    ("tanh(%t)", 100 * 64 * 4 * 2),
    ("sum(%t, axis=[1])", 100 * 64 * 4 + 100 * 4),
    ("add(%t, transpose(%t, axes=[0, 1]))", 100 * 64 * 4 * 2),
    ("sort(%t)", 100 * 64 * 4 * 2),
]


@pytest.mark.parametrize(("body", "expected"), CASES)
def test_a_kernel_moves_what_it_reads_and_writes(body: str, expected: int) -> None:
    text = "def @main(%t: Tensor[(100, 64), float32], %i: Tensor[(5), int64]) { " + body + " }"
    (step,) = weft.compile(weft.parse(text)).manifest.steps
    assert step.bytes_moved == expected


def test_of_a_symbolic_table_all_is_counted() -> None:
    text = "def @main(%t: Tensor[(n, 8), float32], %i: Tensor[(5), int64]) { take(%t, %i, axis=0) }"
    (step,) = weft.compile(weft.parse(text)).manifest.steps
    assert "n" in str(step.bytes_moved)
