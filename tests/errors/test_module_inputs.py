"""Arguments that do not fit the compiled module, and those that fit in another guise."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.errors.bad_models import error_of, good_model
from weft.support.errors import InvalidInputError

X = np.zeros((2, 3), np.float32)
SIGNATURE = "(x: Tensor[(2, 3), float32]) -> (y: Tensor[(2, 3), float32])"


@pytest.fixture(scope="module")
def module() -> Any:
    """relu(x) + w for x of shape (2, 3)."""
    return weft.compile(good_model())


def test_the_right_input_is_accepted(module: Any) -> None:
    np.testing.assert_array_equal(module(X), [[1, 2, 3], [1, 2, 3]])


def assert_message(call: Callable[[], object], message: str) -> None:
    """The call raises ``InvalidInputError`` with exactly this text."""
    error = error_of(call, InvalidInputError)
    assert str(error) == textwrap.dedent(message).strip(), str(error)


@pytest.mark.parametrize(
    ("value", "shape"),
    [
        (X[:, :2], (2, 2)),
        (X[:1], (1, 3)),
        (X[:0], (0, 3)),
        (X[0], (3,)),
        (X.reshape(2, 3, 1), (2, 3, 1)),
        (X.T, (3, 2)),
        (0.0, ()),
        ([[1.0, 2.0]], (1, 2)),
    ],
)
def test_wrong_rank_or_size(module: Any, value: Any, shape: tuple[int, ...]) -> None:
    found = np.asarray(value).dtype if isinstance(value, np.ndarray) else "float64"
    error = error_of(lambda: module(value), InvalidInputError)
    assert error.what == "input 'x' has the wrong shape"
    assert str(error.expected) == "x: Tensor[(2, 3), float32]"
    assert error.got in (f"Tensor[{shape}, {found}]", f"Tensor[{shape}, float32]")


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64", "uint8", "bool"])
def test_wrong_dtype(module: Any, dtype: str) -> None:
    assert_message(
        lambda: module(X.astype(dtype)),
        f"""
        E0500 input 'x' has the wrong dtype
          expected: x: Tensor[(2, 3), float32]
          got: Tensor[(2, 3), {dtype}]
          help: arrays are not converted silently; pass x.astype('float32')
    """,
    )


@pytest.mark.parametrize(
    "value", [[["a", "b", "c"]] * 2, [[None] * 3] * 2, object(), [[1], [2, 3]]]
)
def test_what_is_no_array_of_numbers(module: Any, value: Any) -> None:
    error = error_of(lambda: module(value), InvalidInputError)
    assert "'x'" in error.what
    assert str(error.expected) == "x: Tensor[(2, 3), float32]"


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda m: m(), "the module takes 1 input, 0 given: 'x' missing"),
        (lambda m: m.run(None, {}), "the module takes 1 input, 0 given: 'x' missing"),
        (lambda m: m(X, X), "the module takes 1 input, 2 given"),
        (lambda m: m(X, x=X), "input 'x' is passed both by position and by name"),
        (lambda m: m(y=X), "unknown input: 'y'"),
    ],
)
def test_wrong_names_and_counts(module: Any, call: Callable[[Any], object], what: str) -> None:
    assert_message(lambda: call(module), f"E0500 {what}\n  expected: {SIGNATURE}")


@pytest.mark.parametrize(("fetches", "feeds", "name"), [
    (None, {"data": X}, "data"), (None, {"x": X, "data": X}, "data"),
    (["z"], {"x": X}, "z"), (["y", "z"], {"x": X}, "z"),
])
def test_unknown_tensors(module: Any, fetches: list[str] | None, feeds: dict[str, Any], name: str
                         ) -> None:
    assert_message(lambda: module.run(fetches, feeds), f"""
        E0500 the model has no tensor {name!r}
          expected: inputs 'x', outputs 'y', or an inner tensor
          help: `weft inspect MODEL --tensors` lists the names
    """)


def test_a_misspelt_name_is_corrected() -> None:
    program = weft.parse("def @main(%image: Tensor[(2), float32]) { nn.relu(%image) }")
    error = error_of(lambda: weft.compile(program)(imgae=X[0, :2]), InvalidInputError)
    assert error.help == "did you mean 'image'?"


def test_a_refused_call_leaves_the_module_usable(module: Any) -> None:
    error_of(lambda: module(X[0]), InvalidInputError)
    np.testing.assert_array_equal(module(X - 1), [[1, 2, 3], [1, 2, 3]])


def test_nan_and_infinity_are_values_like_others(module: Any) -> None:
    x = np.float32([[np.nan, np.inf, -np.inf], [0, 1, -1]])
    np.testing.assert_array_equal(module(x), [[np.nan, np.inf, 3], [1, 3, 3]])


class OverInterface:
    """An array of another library that speaks ``__array_interface__`` alone."""

    def __init__(self, array: np.ndarray) -> None:
        self.kept = array
        self.__array_interface__ = array.__array_interface__


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


WIDE = np.arange(-30, 30, dtype=np.float32).reshape(6, 10)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (np.asfortranarray(WIDE[:2, :3]), WIDE[:2, :3]),
        (WIDE[::3, 1:9:3], WIDE[::3, 1:9:3]),
        (WIDE[1::-1, 2::-1], WIDE[1::-1, 2::-1]),
        (WIDE.T[4:6, :3], WIDE.T[4:6, :3]),
        (np.broadcast_to(WIDE[0, :3], (2, 3)), np.stack([WIDE[0, :3]] * 2)),
        (unaligned(WIDE[:2, :3]), WIDE[:2, :3]),
        (WIDE[:2, :3].astype(">f4"), WIDE[:2, :3]),
        (OverInterface(WIDE[2:4, 3:6]), WIDE[2:4, 3:6]),
        (WIDE[:2, :3].tolist(), WIDE[:2, :3]),
        (memoryview(np.ascontiguousarray(WIDE[:2, :3])), WIDE[:2, :3]),
    ],
    ids=["fortran", "strided", "reversed", "transposed", "broadcast", "unaligned", "big-endian",
         "interface", "list", "buffer"],
)
@pytest.mark.filterwarnings("ignore:input 'x' is copied:weft.FallbackWarning")
def test_memory_of_every_shape(module: Any, value: Any, same: np.ndarray) -> None:
    np.testing.assert_array_equal(module(value), np.maximum(same, 0) + np.float32([1, 2, 3]))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:input 'x' is copied:weft.FallbackWarning")
def test_torch_tensors(module: Any) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(-6.0, 6.0).reshape(4, 3)
    expected = np.maximum(tensor.numpy(), 0) + np.float32([1, 2, 3])
    np.testing.assert_array_equal(module(tensor[:2]), expected[:2])
    np.testing.assert_array_equal(module(x=tensor[1::2]), expected[1::2])
    transposed = torch.arange(-6.0, 0.0).reshape(3, 2).T
    np.testing.assert_array_equal(module(transposed), [[1, 2, 3]] * 2)
    with pytest.raises(InvalidInputError, match="wrong dtype"):
        module(tensor[:2].double())
