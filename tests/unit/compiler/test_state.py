"""Outputs that are the next values of inputs, in memory that the module owns."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import weft
from weft.support.errors import OptionError, UnsupportedModelError

SUMS = """
def @main(%x: Tensor[(4), float32], %sum: Tensor[(4), float32], %last: Tensor[(4), float32]) {
  %new = add(%sum, %x);
  (subtract(%x, %last), %new, %x)
}"""
STATE = {"output1": "sum", "output2": "last"}

CACHE = """
def @main(%new: Tensor[(1, 2, n, 8), float32], %at: Tensor[(1), int64],
          %cache: Tensor[(1, 2, 64, 8), float32]) {
  %after = nn.cache_update(%cache, %new, %at);
  (sum(%after), %after)
}"""


def test_the_module_keeps_its_state() -> None:
    model = weft.compile(weft.parse(SUMS), state=STATE)
    assert [spec.name for spec in model.inputs] == ["x"]
    assert len(model.outputs) == 1
    total, last = np.zeros(4, np.float32), np.zeros(4, np.float32)
    for seed in range(4):
        x = np.random.default_rng(seed).standard_normal(4).astype(np.float32)
        np.testing.assert_array_equal(model(x), x - last)
        total, last = total + x, x
        np.testing.assert_allclose(model.state["sum"], total, rtol=1e-6)
        np.testing.assert_array_equal(model.state["last"], last)
    model.state["sum"] = 7
    model(np.ones(4, np.float32))
    np.testing.assert_array_equal(model.state["sum"], np.full(4, 8, np.float32))
    model.state.reset()
    assert not model.state["last"].any()


def test_a_cache_is_updated_in_place_at_all_sizes() -> None:
    model = weft.compile(weft.parse(CACHE), state={"output1": "cache"})
    address = model.state["cache"].ctypes.data
    expected = np.zeros((1, 2, 64, 8), np.float32)
    at = 0
    for n in (3, 1, 1, 20):
        new = np.random.default_rng(n).standard_normal((1, 2, n, 8)).astype(np.float32)
        expected[:, :, at:at + n] = new
        np.testing.assert_allclose(model(new, np.int64([at])), expected.sum(), rtol=1e-5, atol=1e-5)
        at += n
        np.testing.assert_array_equal(model.state["cache"], expected)
    assert model.state["cache"].ctypes.data == address
    # The kernel reads and writes the memory of the state; nothing is copied.
    state = ("state", 0)
    update = next(s for s in model.manifest.steps if "cache_update" in s.op)
    assert update.args.count(state) == 2
    assert not any("copy" in s.op for s in model.manifest.steps)


def test_bound_calls_profiles_and_threads_update_it() -> None:
    model = weft.compile(weft.parse(SUMS), state=STATE)
    x = np.ones(4, np.float32)
    bound = model.bind(x)
    bound()
    bound()
    np.testing.assert_array_equal(model.state["sum"], np.full(4, 2, np.float32))
    workers = [threading.Thread(target=lambda: [model(x) for _ in range(200)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    np.testing.assert_array_equal(model.state["sum"], np.full(4, 802, np.float32))


def test_artifacts_keep_state(tmp_path) -> None:
    weft.compile(weft.parse(CACHE), state={"output1": "cache"}).export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    assert loaded(np.ones((1, 2, 2, 8), np.float32), np.int64([0])) == 32
    assert loaded(np.ones((1, 2, 1, 8), np.float32), np.int64([5])) == 48
    assert weft.load(tmp_path / "m.weft").state["cache"].sum() == 0


def test_modules_do_not_share_state() -> None:
    first, second = (weft.compile(weft.parse(SUMS), state=STATE) for _ in range(2))
    first(np.ones(4, np.float32))
    assert not second.state["sum"].any()


@pytest.mark.parametrize(("state", "words"), [
    ({"nothing": "sum"}, "unknown output 'nothing'"),
    ({"output1": "nothing"}, "unknown input 'nothing'"),
    ({"output1": "sum", "output2": "sum"}, "input 'sum' twice"),
    ([("output1", "sum")], "cannot be used"),
])
def test_wrong_names_are_refused(state: object, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        weft.compile(weft.parse(SUMS), state=state)


def test_types_that_differ_and_symbolic_states_are_refused() -> None:
    text = """def @main(%x: Tensor[(n), float32], %y: Tensor[(4), float32]) { (exp(%x), %x) }"""
    with pytest.raises(OptionError, match="not the next value of 'y'"):
        weft.compile(weft.parse(text), state={"output0": "y"})
    with pytest.raises(UnsupportedModelError, match="'x' has a symbolic size"):
        weft.compile(weft.parse(text), state={"output0": "x"})
