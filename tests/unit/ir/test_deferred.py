"""Arrays that are computed when they are read, and the constants made from them."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from weft.ir import Constant, TensorType, float32
from weft.ir.deferred import Deferred, Joined, Product, copy_elements, is_finite, memory_of

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def product(shape: tuple[int, ...], along: int) -> tuple[Deferred, np.ndarray]:
    source, factor = normal(*shape[::-1]).T, normal(shape[along])
    factors = np.broadcast_to(factor.reshape([-1 if i == along else 1 for i in range(len(shape))]),
                              shape)
    return Product(source, factors), source * factors


def joined() -> tuple[Deferred, np.ndarray]:
    head, tail = normal(60, 37).T, np.full((3, 60), 2, np.float32)
    return Joined(head, tail), np.concatenate([head, tail])


CASES = {"scaled rows": lambda: product((40, 60), 0),
         "scaled columns": lambda: product((40, 60), 1), "joined": joined}
VIEWS = {
    "itself": lambda a: a,
    "blocks": lambda a: a.reshape((4, 10, 60)).transpose((0, 2, 1)),
    "blocks of rows": lambda a: a.reshape((5, 8, 60)).transpose((0, 2, 1))[1:],
    "transposed": lambda a: a.transpose((1, 0)).reshape((6, 10, 40)),
    "reversed axes": lambda a: a.transpose(None),
    "flat": lambda a: a.reshape((2400,)),
    "the first rows": lambda a: a[:30],
    "the last rows": lambda a: a[35:],
    "one row": lambda a: a[38],
    "the last row": lambda a: a[-1],
    "a row from the end": lambda a: a[-20],
    "other rows": lambda a: a[::3],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("case", CASES)
def test_views_have_the_elements_of_the_array(case: str, view: str) -> None:
    lazy, array = CASES[case]()
    seen, expected = VIEWS[view](lazy), VIEWS[view](array)
    assert (seen.shape, seen.dtype) == (expected.shape, expected.dtype)
    assert (seen.ndim, seen.size, seen.nbytes) == (expected.ndim, expected.size, expected.nbytes)
    assert np.array_equal(np.asarray(seen), expected)
    written = np.empty(expected.shape, np.float32)
    copy_elements(written, seen)
    assert np.array_equal(written, expected)


@pytest.mark.parametrize("case", CASES)
def test_elements_are_taken_at_indices(case: str) -> None:
    lazy, array = CASES[case]()
    at = np.array([0, 39, 36, 37]), np.array([59, 0, 7, 7])
    assert np.array_equal(lazy.take(at), array[at])
    assert is_finite(lazy)
    assert memory_of(lazy).shape[1:] == array.shape[1:]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_of_any_dtype_are_known_to_be_finite(dtype: type) -> None:
    assert is_finite(np.ones(3, dtype))
    assert not is_finite(np.array([1, np.inf, 0], dtype))
    assert not is_finite(np.array([np.nan], dtype))


def test_a_constant_computes_its_data_when_they_are_read() -> None:
    lazy, array = product((40, 60), 0)
    constant = Constant(lazy)  # type: ignore[arg-type]
    assert constant.content is lazy
    assert constant.checked_type == TensorType((40, 60), float32)
    assert not constant.is_scalar
    copied = pickle.loads(pickle.dumps(Constant(lazy)))  # type: ignore[arg-type]
    for one in (constant, copied, constant.with_type(TensorType((41, 60), float32))):
        assert np.array_equal(one.data, array)
        assert one.content is one.data
    assert not constant.data.flags.writeable
    with pytest.raises(AttributeError, match="'Constant' object has no attribute 'date'"):
        _ = constant.date  # type: ignore[attr-defined]


def test_a_thread_that_finds_no_data_which_another_then_computes() -> None:
    constant = Constant(product((40, 60), 0)[0])
    data = constant.data
    assert constant.__getattr__("data") is data  # Python calls it for a slot that was empty
    with pytest.raises(AttributeError, match="weight"):
        constant.__getattr__("weight")
