"""What callers may hand in, and what is refused."""

from __future__ import annotations

import array

import ml_dtypes
import numpy as np
import pytest

from weft.runtime import TensorSpec
from weft.runtime.ndarray import to_numpy
from weft.support.errors import InvalidInputError

F32 = TensorSpec("x", "float32", (2, 3))
DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


class Interface:
    """An array of an old library."""

    def __init__(self, data: np.ndarray) -> None:
        self.data = data
        self.__array_interface__ = data.__array_interface__


class Remote:
    """A tensor on a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self) -> object:
        raise AssertionError("its memory must not be asked for")


class Broken:
    @property
    def __array_interface__(self) -> object:
        raise KeyError("broken")


def test_a_fitting_array_is_taken_as_it_is() -> None:
    assert to_numpy(DATA, F32) is DATA


@pytest.mark.parametrize(
    "value",
    [Interface(DATA), memoryview(DATA), DATA.tolist(), [[0, 1, 2], [3, 4, 5]], [DATA[0], DATA[1]],
     np.asfortranarray(DATA), np.repeat(DATA, 2, axis=1)[:, ::2], DATA.astype(">f4"),
     DATA[::-1][::-1]],
    ids=["interface", "buffer", "floats", "integers", "rows", "fortran", "strided", "byteorder",
         "reversed"],
)  # fmt: skip
def test_equal_values_however_they_come(value: object) -> None:
    found = to_numpy(value, F32)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, DATA)


def test_memory_that_is_not_aligned_is_copied() -> None:
    raw = bytearray(b"\0" + DATA.tobytes())
    odd = np.frombuffer(raw, np.float32, offset=1).reshape(2, 3)
    found = to_numpy(odd, F32)
    assert found.flags.aligned
    np.testing.assert_array_equal(found, DATA)


def test_scalars_and_typed_buffers() -> None:
    assert to_numpy(3, TensorSpec("s", "float32", ())).item() == 3.0
    assert to_numpy(True, TensorSpec("s", "bool", ())).item() is True
    assert to_numpy(np.float64(2), TensorSpec("s", "float64", ())).item() == 2.0
    found = to_numpy(array.array("i", [1, 2]), TensorSpec("i", "int32", (2,)))
    assert found.tolist() == [1, 2]
    assert to_numpy([1.5, 2], TensorSpec("b", "bfloat16", (2,))).dtype == ml_dtypes.bfloat16
    assert to_numpy([-8, 7], TensorSpec("b", "int4", (2,))).tolist() == [-8, 7]


@pytest.mark.torch
def test_views_that_torch_negates_where_they_are_read() -> None:
    torch = pytest.importorskip("torch")
    pairs = torch.complex(torch.zeros(2, 3), torch.from_numpy(DATA))
    np.testing.assert_array_equal(to_numpy(pairs.conj().imag, F32), -DATA)


@pytest.mark.torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bool", "float16"])
def test_torch_without_a_copy(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.ones((2, 3), dtype=getattr(torch, dtype))
    found = to_numpy(tensor, TensorSpec("x", dtype, (2, 3)))
    assert found.ctypes.data == tensor.data_ptr()


@pytest.mark.torch
def test_torch_bfloat16_and_strides() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    spec = TensorSpec("x", "bfloat16", (2, 3))
    found = to_numpy(tensor, spec)
    assert found.ctypes.data == tensor.data_ptr()
    del tensor  # the array keeps the memory
    np.testing.assert_array_equal(found.astype(np.float32), DATA)
    transposed = torch.arange(6, dtype=torch.bfloat16).reshape(3, 2).T
    np.testing.assert_array_equal(to_numpy(transposed, spec).astype(np.float32),
                                  np.arange(6).reshape(3, 2).T)
    empty = torch.ones((0, 3), dtype=torch.bfloat16)
    assert to_numpy(empty, TensorSpec("x", "bfloat16", (0, 3))).shape == (0, 3)


@pytest.mark.torch
def test_torch_that_wants_gradients_says_so() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidInputError, match="detach"):
        to_numpy(torch.ones((2, 3), requires_grad=True), F32)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (DATA.astype(np.float64), "wrong dtype"),
        (DATA.astype(np.int32), "wrong dtype"),
        (DATA[:, :2], "wrong shape"),
        (DATA[0], r"got: Tensor\[\(3,\), float32\]"),
        (np.array([["a"] * 3] * 2), "wrong dtype"),
        ("text", "wrong dtype"),
        (None, "wrong dtype"),
        ([[1, 2], [3]], "cannot be read"),
        (1 << 2000, "wrong dtype|cannot be read"),
        ([[1j] * 3] * 2, "wrong dtype"),
        (Remote(), "not in CPU memory"),
        (Broken(), "broken"),
        (object(), "wrong dtype"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(value: object, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as caught:
        to_numpy(value, F32)
    assert caught.value.expected == str(F32)


@pytest.mark.parametrize("value", [[300], [-1], [1.0]])
def test_numbers_are_not_cut_down(value: list) -> None:
    with pytest.raises(InvalidInputError):
        to_numpy(value, TensorSpec("x", "uint8", (1,)))
    assert to_numpy([255], TensorSpec("x", "uint8", (1,))).tolist() == [255]


def test_floats_round_but_do_not_overflow() -> None:
    assert to_numpy([0.1], TensorSpec("x", "float32", (1,)))[0] == np.float32(0.1)
    assert np.isinf(to_numpy([float("inf")], TensorSpec("x", "float16", (1,))))[0]
    assert to_numpy([], TensorSpec("x", "float16", (0,))).size == 0
    for dtype, value in (("float32", 1e300), ("float16", 70000), ("bfloat16", -1e300)):
        with pytest.raises(InvalidInputError, match="out of range"):
            to_numpy([value], TensorSpec("x", dtype, (1,)))
