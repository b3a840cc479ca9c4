"""Dimensions over symbols: normal forms, ranges, text, substitution in programs."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.ir.json.values import load_value, save_value
from weft.ir.shape import (
    AnyDim,
    Dim,
    SymDim,
    bounds_of,
    dim_floordiv,
    dim_max,
    dim_min,
    dims_equal,
    multiple_of,
    substitute_dim,
)
from weft.ir.structural import structural_equal, structural_hash
from weft.ir.substitution import substitute_symbols
from weft.ir.symbol import name_of, range_of, size_of_dim
from weft.ir.text.parser import parse, parse_dim
from weft.ir.typing.infer import infer_type
from weft.runtime.sizes import evaluate
from weft.support.errors import TypeInferenceError

N, M, K = (SymDim.symbol(text) for text in ("n", "m{2..9}", "k{4..%4}"))


@st.composite
def dims(draw: Any, depth: int = 3) -> Any:
    """A dimension, and the same arithmetic on numbers as a function of the sizes."""
    if depth == 0 or draw(st.booleans()):
        leaf = draw(st.sampled_from([N, M, K, 0, 1, 3, -2]))
        if isinstance(leaf, int):
            return leaf, lambda _: leaf
        name = name_of(str(leaf))
        return leaf, lambda sizes: sizes[name]
    (a, f), (b, g) = draw(dims(depth - 1)), draw(dims(depth - 1))
    kind = draw(st.sampled_from(["+", "-", "*", "//", "max", "min"]))
    if kind == "//":
        by = draw(st.integers(1, 5))
        return dim_floordiv(a, by), lambda sizes: f(sizes) // by
    made: dict[str, tuple[Any, Any]] = {
        "+": (a + b, lambda sizes: f(sizes) + g(sizes)),
        "-": (a - b, lambda sizes: f(sizes) - g(sizes)),
        "*": (a * b, lambda sizes: f(sizes) * g(sizes)),
        "max": (dim_max(a, b), lambda sizes: max(f(sizes), g(sizes))),
        "min": (dim_min(a, b), lambda sizes: min(f(sizes), g(sizes))),
    }
    return made[kind]


SIZES = st.fixed_dictionaries({
    "n": st.integers(0, 12), "m": st.integers(2, 9), "k": st.integers(1, 6).map(lambda i: 4 * i)})


@given(dims(), SIZES)
def test_dims_compute_like_numbers(drawn: Any, sizes: dict[str, int]) -> None:
    dim, numbers = drawn
    expected = numbers(sizes)
    assert substitute_dim(dim, sizes) == expected
    assert evaluate(size_of_dim(dim), sizes) == expected
    low, high = bounds_of(dim)
    assert low is None or low <= expected
    assert high is None or expected <= high
    factor = multiple_of(dim)
    assert expected % factor == 0 if factor else expected == 0


@given(dims())
def test_dims_print_and_parse(drawn: Any) -> None:
    dim, _ = drawn
    assert parse_dim(str(dim)) == dim
    assert load_value(save_value(dim)) == dim
    assert pickle.loads(pickle.dumps(dim)) == dim


@pytest.mark.parametrize(("got", "expected"), [
    (dim_max(N - 3, 0), "max(0, n - 3)"), (dim_max(M - 2, 0), "m{2..9} - 2"),
    (dim_min(N, N + 1), "n"), (dim_min(dim_min(N, 7), 3), "min(3, n)"),
    (dim_floordiv(K, 4) * 8, "2*k{4..%4}"), (dim_floordiv(N * K * 4, N), "4*k{4..%4}"),
    (dim_floordiv(N + 1, N), "?"),
    (dim_floordiv(dim_floordiv(N + 1, 2) + 1, 2), "floordiv(n + 3, 4)"),
    (dim_floordiv(N * 2 + 3, 4), "floordiv(n + 1, 2)"),
    (dim_floordiv(K + 1, 2), "floordiv(k{4..%4}, 2)"),
    (dim_floordiv(K - 1, 2) + 1, "floordiv(k{4..%4}, 2)"),
    (dim_floordiv(K, 4) * 2, "floordiv(k{4..%4}, 2)"),
    (dim_floordiv(K, 4) + dim_floordiv(K, 4), "floordiv(k{4..%4}, 2)"),
    (dim_floordiv(dim_floordiv(K, 2), 2) * 4, "k{4..%4}"),
])
def test_normal_forms(got: Dim, expected: str) -> None:
    assert str(got) == expected


def test_ranges_tell_dims_apart() -> None:
    assert dims_equal(M, 1) is False
    assert dims_equal(N, 1) is None
    assert dims_equal(K, AnyDim()) is None


PROGRAM = """
def @main(%x: Tensor[(batch, s{1..}, 24), float32], %i: Tensor[(s{1..},), int64]) {
  let %heads = reshape(%x, newshape=[batch, s{1..}, 4, 6]);
  let %joined = reshape(%x, newshape=[0, -1, 6]);
  let %mask = full(1f, shape=(s{1..}, s{1..} + 1));
  let %tail = strided_slice(%x, begin=[-1], end=[2147483647], axes=[1]);
  let %wide = nn.pad(%mask, 0f, pad_width=[[2*s{1..}, 1], [0, batch]]);
  let %parts = split(%x, indices_or_sections=[1], axis=1);
  (%heads, %joined, %tail, %wide, %parts.1, arange(stop=batch + 2*s{1..}), %i)
}
"""


def test_symbolic_attributes_in_text() -> None:
    module = infer_type(parse(PROGRAM))
    again = infer_type(parse(str(module)))
    assert structural_equal(module, again)
    assert structural_hash(module) == structural_hash(again)
    assert "newshape=[batch, s{1..}, 4, 6]" in str(module)


@pytest.mark.parametrize("sizes", [{"s": 5}, {"batch": 0}, {"batch": 2, "s": 1}, {"s": "s{2..9}"},
                                   {"s": "t{1..}", "batch": 3}])
def test_substitution_reaches_types_and_attributes(sizes: dict[str, Any]) -> None:
    found = substitute_symbols(infer_type(parse(PROGRAM)), sizes)
    for name in sizes:
        replaced = {"batch": "batch", "s": "s{1..}"}[name]
        assert replaced not in str(found).replace(f"%{name}", "")
    result = str(found["main"].checked_type)
    batch, length = sizes.get("batch", "batch"), sizes.get("s", "s{1..}")
    assert f"Tensor[({batch}, {length}, 4, 6), float32]" in result
    assert f"Tensor[({batch}, 1, 24), float32]" in result


def test_substitution_of_one_function() -> None:
    function = infer_type(parse(PROGRAM))["main"]
    found = substitute_symbols(function, {"batch": 2, "s": 3})
    assert "Tensor[(2, 12, 6), float32]" in str(found.checked_type)


def test_a_size_out_of_range_is_refused() -> None:
    with pytest.raises(TypeInferenceError, match="out of its range"):
        substitute_symbols(infer_type(parse(PROGRAM)), {"s": 0})
    assert 0 not in range_of("s{1..}")
