"""Programs for all sizes under many sizes, threads and wrong sizes: no compile, bounded memory."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidInputError, TypeInferenceError

BLOCK = """
def @main(%x: Tensor[(batch, seq, 32), float32], %w: Tensor[(96, 32), float32],
          %up: Tensor[(64, 32), float32], %down: Tensor[(32, 64), float32],
          %one: Tensor[(32), float32]) {
  %p = split(nn.dense(nn.layer_norm(%x, %one, subtract(%one, %one)), %w),
             indices_or_sections=3, axis=-1);
  %s = nn.softmax(multiply(nn.batch_matmul(%p.0, %p.1), 0.17677669f));
  %y = add(%x, nn.batch_matmul(%s, transpose(%p.2, axes=[0, 2, 1])));
  add(%y, nn.dense(nn.relu(nn.dense(%y, %up)), %down))
}"""


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [*(random.standard_normal(shape).astype(np.float32) / 8
              for shape in ((96, 32), (64, 32), (32, 64))), np.ones(32, np.float32)]


@pytest.fixture(scope="module")
def block() -> weft.Executable:
    model = weft.compile(weft.parse(BLOCK), threads=1)
    assert model.general is not None, model.reason
    return model


def array(batch: int, seq: int) -> np.ndarray:
    return np.random.default_rng(batch * 1000 + seq).standard_normal((batch, seq, 32)).astype("f4")


def expected(x: np.ndarray) -> np.ndarray:
    w, up, down, _ = weights()
    norm = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    q, k, v = np.split(norm @ w.T, 3, axis=-1)
    scores = np.exp(q @ k.swapaxes(1, 2) * 0.17677669)
    y = x + scores / scores.sum(-1, keepdims=True) @ v
    return y + np.maximum(y @ up.T, 0) @ down.T


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_thousand_sizes_add_no_compile_and_no_memory(block: weft.Executable) -> None:
    constants = weights()
    pairs = [(1 + k % 25, 1 + k // 25) for k in range(1000)]
    largest = array(25, 40)
    np.testing.assert_allclose(block(largest, *constants), expected(largest), rtol=1e-3, atol=1e-4)
    for pair in pairs[::3]:
        block(np.zeros((*pair, 32), np.float32), *constants)  # fills the table of ready calls
    arena, resident = block.general.arena_nbytes, resident_bytes()
    for number, pair in enumerate(pairs):
        x = array(*pair)
        y = block(x, *constants)
        if number % 50 == 0:
            np.testing.assert_allclose(y, expected(x), rtol=1e-3, atol=1e-4)
    assert block.sizes == ()  # no program was compiled for a size
    assert block.general.arena_nbytes == arena
    assert resident_bytes() - resident < 8 << 20


def test_threads_call_one_model_at_different_sizes(block: weft.Executable) -> None:
    constants = weights()
    sizes = [(1, 3), (4, 17), (2, 30), (7, 1), (3, 9), (5, 25)]
    wanted = {size: block(array(*size), *constants) for size in sizes}
    wrong: list[object] = []

    def work(number: int) -> None:
        out: dict[tuple[int, int], np.ndarray] = {}
        for k in range(120):
            size = sizes[(number + k) % len(sizes)]
            # Calls into given memory take arenas in Python, others in machine code.
            into = out.setdefault(size, np.empty_like(wanted[size])) if k % 2 else None
            found = block(array(*size), *constants, out=into)
            if not np.array_equal(found, wanted[size]):
                wrong.append(size)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@pytest.mark.parametrize(("shape", "words"), [
    ((2, 3), "rank 2"), ((2, 3, 31), "fixed size of 32"), ((2, 3, 4, 32), "rank 4")])
def test_wrong_shapes_leave_the_model_usable(
    block: weft.Executable, shape: tuple[int, ...], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        block(np.zeros(shape, np.float32), *weights())
    assert block(array(0, 5), *weights()).shape == (0, 5, 32)
    assert block(array(2, 0), *weights()).shape == (2, 0, 32)


class Shaped:
    """An object with any shape."""

    def __init__(self, shape: object) -> None:
        self.shape = shape


PRODUCT = weft.parse("""
def @main(%x: Tensor[(n, k), float32], %y: Tensor[(m, k), float32]) {
  nn.softmax(nn.dense(%x, %y))
}""")


@pytest.fixture(scope="module")
def product() -> weft.Executable:
    return weft.compile(PRODUCT)


@pytest.mark.parametrize("size", [1 << 25, 1 << 31, 1 << 40])
def test_products_beyond_memory_are_refused(product: weft.Executable, size: int) -> None:
    x = np.zeros((size, 0), np.float32)
    with pytest.raises(InvalidInputError, match="more memory than there are addresses"):
        product(x, x)
    assert product(np.zeros((2, 0), np.float32), np.zeros((3, 0), np.float32)).shape == (2, 3)


@pytest.mark.parametrize("value", [
    Shaped(None), Shaped((-1, 3)), Shaped(("n", 3)), Shaped((1 << 70, 3)), Shaped(lambda: 3),
    [[1, 2], [3]], None, "text", 3])
def test_values_without_a_shape_are_refused(product: weft.Executable, value: object) -> None:
    with pytest.raises(InvalidInputError):
        product(value, np.zeros((4, 3), np.float32))


def test_windows_larger_than_the_input_are_refused() -> None:
    model = weft.compile(weft.parse("""
    def @main(%x: Tensor[(1, 2, n, m), float32]) {
      sum(nn.max_pool2d(nn.relu(%x), pool_size=[3, 3], strides=[1, 1], padding=[0, 0, 0, 0]))
    }"""))
    assert model.general is not None
    assert model(np.ones((1, 2, 4, 3), np.float32)) == 4
    for shape in ((1, 2, 1, 3), (1, 2, 3, 1), (1, 2, 1, 1), (1, 2, 0, 9)):
        with pytest.raises(InvalidInputError, match=r"too small: \w - 2 is -"):
            model(np.ones(shape, np.float32))


@pytest.mark.parametrize("name", ["max", "__class__", "_sizes"])
def test_any_name_is_a_size(name: str) -> None:
    text = "def @main(%x: Tensor[(n, 4), float32]) { nn.softmax(nn.softmax(%x)) }"
    model = weft.compile(weft.parse(text), inputs={"x": (name, 4)})
    assert model.general is not None, model.reason
    assert model(np.zeros((3, 4), np.float32)).sum() == 3


def test_names_of_table_entries_are_refused() -> None:
    """Entries of the table of sizes are called ``_0``, ``_1``, ...: a program per set of shapes."""
    text = "def @main(%x: Tensor[(n, 4), float32]) { nn.softmax(nn.softmax(%x)) }"
    with pytest.warns(weft.FallbackWarning, match="a name that weft reserves"):
        model = weft.compile(weft.parse(text), inputs={"x": ("_0", 4)})
    assert model.general is None
    assert "reserves" in model.reason
    assert model(np.zeros((3, 4), np.float32)).sum() == 3
    with pytest.raises(TypeInferenceError):
        weft.compile(weft.parse(text), inputs={"x": ("x y", 4)})
