"""The namespace: its names, inspection, dtypes and functions that make arrays."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.array_api.reference import check
from weft import array_api as xp
from weft.support.errors import InvalidInputError, OptionError

TEXT = """
e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace
meshgrid ones ones_like tril triu zeros zeros_like astype broadcast_arrays broadcast_to can_cast
finfo iinfo isdtype result_type bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32
float64 abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift
bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide
equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less
less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum
minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round sign
signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis matmul matrix_transpose
tensordot vecdot concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack
tile unstack complex64 complex128 argmax argmin count_nonzero nonzero searchsorted where unique_all
unique_counts
unique_inverse unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std sum
var all any diff fft linalg __array_namespace_info__ __array_api_version__
"""
NAMES = TEXT.split()


def test_all_names_of_the_standard_are_there():
    assert [name for name in NAMES if not hasattr(xp, name)] == []
    assert set(xp.__all__) == set(NAMES) - {"__array_api_version__"}


def test_arrays_find_their_namespace():
    x = weft.ones(2)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(OptionError, match="unknown version"):
        x.__array_namespace__(api_version="1999.01")
    assert x.to_device("cpu").dtype is xp.float32
    check(1 << weft.tensor([1, 2]), np.array([2, 4]))
    check(9 >> weft.tensor([1, 2]), np.array([4, 2]))
    check(weft.tensor([-9, 3], dtype="int8") >> 9, np.array([-1, 0], np.int8))
    assert x.__dlpack__(stream=None, copy=True)


def test_the_inspection_says_what_there_is():
    info = xp.__array_namespace_info__()
    assert info.devices() == [info.default_device()]
    assert info.default_dtypes()["integral"] is xp.int64
    assert list(info.dtypes(kind="signed integer")) == ["int8", "int16", "int32", "int64"]
    assert list(info.dtypes(kind="complex floating")) == ["complex64", "complex128"]
    assert info.dtypes(kind=("bool", "real floating")) == {
        "bool": xp.bool, "float32": xp.float32, "float64": xp.float64}
    assert len(info.dtypes()) == 13
    assert info.capabilities()["boolean indexing"]
    with pytest.raises(OptionError, match="unknown kind"):
        info.dtypes(kind="rational")


def test_dtypes():
    assert xp.isdtype(xp.int8, "integral")
    assert xp.isdtype(xp.bool, ("numeric", xp.bool))
    assert not xp.isdtype(xp.float32, "complex floating")
    assert xp.isdtype(xp.complex64, "complex floating")
    assert xp.result_type(xp.float64, 1j) is xp.complex128
    assert xp.finfo(xp.complex64).bits == 32
    assert xp.can_cast(xp.int8, xp.int16)
    assert not xp.can_cast(xp.float64, xp.float32)
    assert not xp.can_cast(xp.bool, xp.int8)
    assert xp.result_type(xp.int32, xp.uint32) is xp.int64
    assert xp.result_type(xp.float32, weft.ones(1, dtype="float64"), 1) is xp.float64
    limits = xp.finfo(xp.float32)
    assert (limits.bits, limits.dtype) == (32, xp.float32)
    assert limits.eps == np.finfo(np.float32).eps
    assert (xp.iinfo(weft.ones(1, dtype="uint8")).max, xp.iinfo(xp.int8).min) == (255, -128)
    for function, wrong in ((xp.finfo, xp.int8), (xp.iinfo, xp.float32)):
        with pytest.raises(InvalidInputError):
            function(wrong)


def test_conversions_copy_when_asked():
    x = weft.ones(2)
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float32) is not x
    assert xp.astype(x, xp.int8).dtype is xp.int8
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=True) is not x
    for wrong in (lambda: xp.asarray([1], copy=False),
                  lambda: xp.asarray(x, dtype=xp.int8, copy=False)):
        with pytest.raises(InvalidInputError, match="copy"):
            wrong()


def test_functions_that_make_arrays():
    for found, wanted in (
            (xp.asarray([[1, weft.tensor(2)], [3, 4]]), np.array([[1, 2], [3, 4]])),
            (xp.asarray(np.arange(3, dtype=np.uint16)), np.arange(3, dtype=np.uint16)),
            (xp.arange(5, 1, -2), np.arange(5, 1, -2)), (xp.arange(3), np.arange(3)),
            (xp.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, False, dtype=np.float32)),
            (xp.eye(2, 3, k=1), np.eye(2, 3, k=1, dtype=np.float32)),
            (xp.full((2,), 7), np.full(2, 7)), (xp.full(2, 1.5, dtype=xp.float64), np.full(2, 1.5)),
            (xp.zeros((2, 1), dtype=xp.int8), np.zeros((2, 1), np.int8)),
            (xp.ones(3), np.ones(3, np.float32)),
            (xp.ones_like(weft.zeros(2, dtype="uint8")), np.ones(2, np.uint8)),
            (xp.full_like(weft.zeros(2), 3), np.full(2, 3, np.float32)),
            (xp.from_dlpack(np.arange(3.0)), np.arange(3.0)),
            (xp.meshgrid(xp.arange(2), xp.arange(3))[0],
             np.meshgrid(np.arange(2), np.arange(3))[0]),
            (xp.broadcast_arrays(weft.ones(2, 1), weft.ones(3))[1], np.ones((2, 3), np.float32))):
        check(found, wanted)
