"""Results in memory of the caller's: ``mod(x, out=y)`` and ``mod.bind(x, out=y)``."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidInputError, TargetError

PAIR = """
def @main(%x: Tensor[(3, 4), float32], %y: Tensor[(3, 4), float32]) {
  (add(tanh(%x), %y), sum(%x, axis=(1,)))
}"""
ONE = "def @main(%x: Tensor[(3, 4), float32]) { tanh(nn.softmax(%x)) }"
OPEN = "def @main(%x: Tensor[(n, 4), float32]) { tanh(nn.softmax(%x)) }"
RECURSIVE = """
def @main(%x: Tensor[(3, 4), float32], %n: Tensor[(), int32]) { @more(%x, %n) }
def @more(%x: Tensor[(3, 4), float32], %n: Tensor[(), int32]) -> Tensor[(3, 4), float32] {
  if (less(%n, 1)) { %x } else { tanh(@more(tanh(%x), subtract(%n, 1))) }
}"""
CHOSEN = "def @main(%x: Tensor[(5,), float32]) { argwhere(greater(%x, 0f)) }"  # sizes by data


@pytest.fixture(scope="module", params=["compiled", "loaded"])
def pair(request, tmp_path_factory):
    mod = weft.compile(weft.parse(PAIR))
    if request.param == "compiled":
        return mod
    path: Path = tmp_path_factory.mktemp("artifact") / "pair.weft"
    mod.export(path)
    return weft.load(path)


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def test_one_output(x):
    mod = weft.compile(weft.parse(ONE))
    y = np.full((3, 4), np.nan, np.float32)
    assert mod(x, out=y) is y
    np.testing.assert_array_equal(y, mod(x))
    z = np.empty((2, 3, 4), np.float32)
    view = z[1]
    assert mod(x, out=(view,)) is view
    np.testing.assert_array_equal(z[1], y)


def test_several_outputs(pair, x):
    wanted = pair(x, x + 1)
    a, b = np.empty((3, 4), np.float32), np.empty(3, np.float32)
    results = pair(x, x + 1, out=(a, b))
    assert results[0] is a
    assert results[1] is b
    names = [spec.name for spec in pair.outputs]
    for out in ((None, b), [None, b], {names[1]: b}):
        b[:] = 0
        made, given = pair(x, y=x + 1, out=out)
        assert given is b
        np.testing.assert_array_equal(made, wanted[0])
        np.testing.assert_array_equal(b, wanted[1])
    np.testing.assert_array_equal(a, wanted[0])


def test_step_by_step(x, capsys):
    with weft.config(debug=2):
        mod = weft.compile(weft.parse(ONE), no_cache=True)
    y = np.zeros((3, 4), np.float32)
    with weft.config(debug=2):
        assert mod(x, out=y) is y
    np.testing.assert_array_equal(y, weft.compile(weft.parse(ONE))(x))
    assert "softmax" in capsys.readouterr().err


@pytest.mark.parametrize(("value", "words"), [
    (np.empty((3, 4), np.float64), "output .* has the wrong dtype"),
    (np.empty((4, 3), np.float32), "output .* has the wrong shape"),
    (np.empty((4, 3), np.float32).T, "output .* is not contiguous in memory"),
    (np.empty((3, 8), np.float32)[:, ::2], "output .* is not contiguous in memory"),
    (np.frombuffer(bytes(49), np.uint8)[1:].view(np.float32).reshape(3, 4),
     "output .* (is read-only|is not contiguous)"),
    (np.frombuffer(bytes(48), np.float32).reshape(3, 4), "output .* is read-only"),
    ([[0.0] * 4] * 3, "out has 3 entries for 1 outputs"),
    ((), "out has 0 entries for 1 outputs"),
    ({"nothing": np.empty((3, 4), np.float32)}, "unknown output: 'nothing'"),
    (3.0, "output .* is not an array"),
    ("y", "output .* is not an array"),
])
def test_buffers_that_cannot_be_used(x, value, words):
    mod = weft.compile(weft.parse(ONE))
    for call in (mod, mod.bind):
        with pytest.raises(InvalidInputError, match=words):
            call(x, out=value)


def test_outputs_that_share_memory(pair):
    memory = np.zeros(64, np.float32)
    x, y = memory[:12].reshape(3, 4), memory[12:24].reshape(3, 4)
    after = memory[24:36].reshape(3, 4)
    np.testing.assert_array_equal(pair(x, y, out=(after, memory[36:39]))[0], 0)
    for out, words in (
        ((x, None), "output .* shares memory with input 'x'"),
        ((memory[6:18].reshape(3, 4), None), "shares memory with input 'x'"),
        ((None, memory[21:24]), "shares memory with input 'y'"),
        ((after, memory[34:37]), "shares memory with output"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            pair(x, y, out=out)
    with pytest.raises(InvalidInputError, match="pass a tuple"):
        pair(x, y, out=after)


def test_bound_buffers(pair, x):
    y, total = x + 1, np.empty(3, np.float32)
    run = pair.bind(x, y=y, out=(None, total))
    for step in range(3):
        x += step
        results = run()
        assert results is run.outputs
        assert results[1] is total
        np.testing.assert_array_equal(results[0], pair(x, y)[0])
        np.testing.assert_array_equal(total, pair(x, y)[1])
    assert run.inputs[0] is x


def test_inputs_that_would_be_copied(x):
    mod = weft.compile(weft.parse(ONE))
    for value in (np.asfortranarray(x), x.tolist(), np.repeat(x, 2, 1)[:, ::2]):
        with pytest.raises(InvalidInputError, match="input 'x'"):
            mod.bind(value)
    with pytest.raises(InvalidInputError, match="missing"):
        mod.bind()


def test_an_input_called_out(x):
    mod = weft.compile(weft.parse(ONE.replace("%x", "%out")))
    np.testing.assert_array_equal(mod(out=x), mod(x))
    np.testing.assert_array_equal(mod.bind(out=x)(), mod(x))


def test_dynamic_shapes():
    mod = weft.compile(weft.parse(OPEN))
    for n in (2, 5):
        x, y = np.ones((n, 4), np.float32), np.empty((n, 4), np.float32)
        assert mod(x, out=y) is y
        np.testing.assert_array_equal(mod.bind(x)(), y)
        np.testing.assert_array_equal(mod(x), y)
        with pytest.raises(InvalidInputError, match="wrong shape"):
            mod(x, out=np.empty((n + 1, 4), np.float32))


def test_the_virtual_machine(x):
    mod = weft.compile(weft.parse(RECURSIVE))
    assert mod.manifest.vm is not None
    y, n = np.empty((3, 4), np.float32), np.array(2, np.int32)
    assert mod(x, n, out=y) is y
    np.testing.assert_array_equal(y, mod(x, n))
    run = mod.bind(x, n)
    n[...] = 1
    np.testing.assert_array_equal(run(), mod(x, np.int32(1)))
    with pytest.raises(InvalidInputError, match="wrong dtype"):
        mod(x, n, out=np.empty((3, 4)))
    with pytest.raises(InvalidInputError, match="shares memory"):
        mod(x, n, out=x)


def test_sizes_that_depend_on_data():
    mod = weft.compile(weft.parse(CHOSEN))
    x = np.array([1, -1, 2, -2, 3], np.float32)
    places = np.empty((3, 1), mod(x).dtype)
    assert mod(x, out=places) is places
    np.testing.assert_array_equal(places, [[0], [2], [4]])
    with pytest.raises(InvalidInputError, match="wrong shape"):
        mod(-x, out=places)
    with pytest.raises(InvalidInputError, match="cannot be bound"):
        mod.bind(x)


def test_a_model_for_another_machine(x):
    target = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic"
    mod = weft.compile(weft.parse(ONE), target=target)
    with pytest.raises(TargetError):
        mod.bind(x)


@pytest.mark.torch
def test_tensors_of_torch(x):
    torch = pytest.importorskip("torch")
    mod = weft.compile(weft.parse(ONE))
    given, y = torch.from_numpy(x), torch.empty(3, 4)
    assert mod(given, out=y) is y
    np.testing.assert_array_equal(y.numpy(), mod(x))
    run = mod.bind(given, out=y)
    given.mul_(2)
    assert run() is y
    np.testing.assert_array_equal(y.numpy(), mod(given))
    with pytest.raises(InvalidInputError, match="wrong dtype"):
        mod(x, out=y.double())


def test_threads_that_share_a_bound_call(x):
    mod = weft.compile(weft.parse(PAIR))
    run, wanted, wrong = mod.bind(x, x), mod(x, x), []

    def work():
        for _ in range(200):
            run()
            wrong.extend(1 for a, b in zip(run.outputs, wanted, strict=True)
                         if not np.array_equal(a, b))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong
