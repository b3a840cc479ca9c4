"""Slices of symbolic axes: the type for every size is what NumPy slices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft import op
from weft.ir.expr import var
from weft.ir.shape import SymDim, substitute_dim
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr

INT32_END = 2**31 - 1
BOUNDS = st.one_of(st.integers(-7, 7), st.sampled_from([INT32_END, -INT32_END - 1]))


@given(BOUNDS, BOUNDS, st.sampled_from([1, 2, 3, -1, -2]), st.integers(0, 9))
def test_slices_by_numbers(begin: int, end: int, stride: int, size: int) -> None:
    call = infer_expr(op.strided_slice(var("x", ("n",)), begin=(begin,), end=(end,),
                                       strides=(stride,)))
    assert isinstance(call.checked_type, TensorType)
    length = substitute_dim(call.checked_type.shape[0], {"n": size})
    assert length == len(range(*slice(begin, end, stride).indices(size)))


@given(st.integers(0, 3), st.integers(-3, 3), st.sampled_from([1, 2, -1]), st.integers(3, 9),
       st.integers(0, 9))
def test_slices_by_symbols(factor: int, offset: int, stride: int, m: int, size: int) -> None:
    symbol = SymDim.symbol("m{3..}")
    begin, end = symbol * factor, symbol + offset
    call = infer_expr(op.strided_slice(var("x", ("n",)), begin=(begin,), end=(end,),
                                       strides=(stride,)))
    assert isinstance(call.checked_type, TensorType)
    length = substitute_dim(call.checked_type.shape[0], {"n": size, "m": m})
    assert length == len(range(*slice(m * factor, m + offset, stride).indices(size)))
