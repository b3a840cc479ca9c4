"""The texts that users write for the sizes of inputs."""

from __future__ import annotations

import pytest

from weft.ir.shape import SymDim, as_dim
from weft.ir.symbol import common_symbols
from weft.support.errors import TypeInferenceError


@pytest.mark.parametrize(("text", "meaning"), [
    ("n", "n"), ("n{1..16}", "n{1..16}"), ("1 <= n <= 64", "n{1..64}"), ("n<=2048", "n{0..2048}"),
    ("n >= 1", "n{1..}"), ("64 > n", "n{0..63}"), ("n <= 64 and n % 8 == 0", "n{0..64%8}"),
    ("0 < n", "n{1..}"), ("past + seq", "past + seq"), ("2*n + 1", "2*n + 1"),
    ("n // 2", "floordiv(n, 2)"),
])
def test_sizes(text: str, meaning: str) -> None:
    assert str(as_dim(text)) == meaning


@pytest.mark.parametrize("text", [
    "", "n+", "n <= m", "-3", "12", "n != 3", "n <= 3 or n >= 8", "f(n)", "n/2", "n <= 2.5",
    "n // m", "1 <= n + m", "n <= 4 and m", "n{4..1}", "n >= 5 and n <= 4", "n <= -1",
    "9 <= n <= 15 and n % 8 == 0"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(TypeInferenceError):
        as_dim(text)


def test_a_bound_holds_wherever_its_name_occurs() -> None:
    shapes = [(as_dim("n <= 64"), 3), (as_dim("n"), as_dim("n >= 2"))]
    assert common_symbols(shapes) == {"n": SymDim.symbol("n{2..64}")}
    with pytest.raises(TypeInferenceError, match="bounds of n contradict each other"):
        common_symbols([(as_dim("n <= 4"),), (as_dim("n >= 8"),)])
