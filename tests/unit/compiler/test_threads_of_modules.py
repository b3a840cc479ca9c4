"""``weft.compile(..., threads=n)``: the count stays with the module, wherever that goes."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.runtime import num_threads
from weft.runtime.devices.cpu.threads import Threading
from weft.support.errors import OptionError

FIXED = "def @main(%x: Tensor[(600, 70), float32]) { nn.softmax(tanh(%x)) }"
OPEN = FIXED.replace("600", "n")
RECURSIVE = """
def @main(%x: Tensor[(600, 70), float32], %n: Tensor[(), int32]) { @more(%x, %n) }
def @more(%x: Tensor[(600, 70), float32], %n: Tensor[(), int32])
    -> Tensor[(600, 70), float32] {
  if (less(%n, 1)) { %x } else { tanh(@more(tanh(%x), subtract(%n, 1))) }
}"""
X = np.random.default_rng(0).standard_normal((600, 70)).astype(np.float32)


def used(module: object) -> int:
    """The count that the module's code was last told."""
    return module.launcher.threading._count


@pytest.mark.usefixtures("own_cache")
def test_the_module_keeps_the_count_and_the_cache_does_not():
    plain = weft.compile(weft.parse(FIXED))
    for count in (1, 3):
        mod = weft.compile(weft.parse(FIXED), threads=count)
        np.testing.assert_array_equal(mod(X), plain(X))
        assert (mod.threads, used(mod)) == (count, count)
    assert plain.threads is None
    assert used(plain) == num_threads()
    with weft.config(threads=2):
        np.testing.assert_array_equal(mod(X), plain(X))
    assert used(mod) == used(plain) == 2


def test_modules_with_dynamic_shapes(monkeypatch):
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    mod = weft.compile(weft.parse(OPEN), threads=1)
    assert mod.manifest.threads == 1
    mod(X)
    assert used(mod.general) == 1
    fixed = mod.specialize({"x": (600, 70)})
    fixed(X)
    assert used(fixed) == 1


def test_modules_on_the_virtual_machine():
    mod = weft.compile(weft.parse(RECURSIVE), threads=1)
    assert mod.manifest.vm is not None
    alone = mod(X, np.int32(2))
    assert used(mod) == 1
    with weft.config(threads=2):
        np.testing.assert_array_equal(mod(X, np.int32(2)), alone)
    assert used(mod) == 2


def test_artifacts_and_pickles_keep_it(tmp_path: Path):
    mod = weft.compile(weft.parse(FIXED), threads=1)
    path = tmp_path / "m.weft"
    mod.export(path)
    for again in (weft.load(path), pickle.loads(pickle.dumps(mod))):
        np.testing.assert_array_equal(again(X), mod(X))
        assert (again.threads, used(again)) == (1, 1)
    other = weft.load(path, threads=3)
    np.testing.assert_array_equal(other(X), mod(X))
    assert used(other) == 3
    weft.compile(weft.parse(FIXED)).export(path)
    assert weft.load(path).threads is None


@pytest.mark.parametrize("count", [0, -1, 4097, "many", 1.5])
def test_counts_that_cannot_be_used(tmp_path: Path, count: object):
    with pytest.raises(OptionError, match="threads"):
        weft.compile(weft.parse(FIXED), threads=count)
    with pytest.raises(OptionError, match="threads"):
        weft.load(tmp_path / "not read", threads=count)


@pytest.mark.torch
def test_the_option_of_torch_compile(monkeypatch):
    torch = pytest.importorskip("torch")
    counts = []
    monkeypatch.setattr(Threading, "apply", lambda _, count: counts.append(count))
    net = torch.compile(torch.nn.Softmax(1), backend="weft", options={"threads": 3})
    with torch.no_grad():
        net(torch.ones(4, 5))
    assert set(counts) == {3}
