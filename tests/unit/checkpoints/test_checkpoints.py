"""Checkpoints hold any state, are written whole or not at all, and show damage."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.checkpoints import (
    checkpoint_files,
    load_checkpoint,
    read_checkpoint,
    save_checkpoint,
    write_checkpoint,
)
from weft.data import ArrayDataset, DataLoader
from weft.support.errors import CheckpointError

LEAVES = (st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
          | st.binary(max_size=4)
          | st.sampled_from(["float32", "int8", "bool", "bfloat16", "float64", "uint32"]).map(
              lambda d: np.arange(6).astype(getattr(ml_dtypes, d, d)).reshape(2, 3)))
STATES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3)
                      | st.lists(inner, max_size=3).map(tuple)
                      | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner,
                                        max_size=3), max_leaves=8)


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or a != a)


@given(state=st.dictionaries(st.text(max_size=3), STATES, max_size=3))
@settings(max_examples=50, deadline=None)
def test_every_state_comes_back(tmp_path_factory, state):
    path = tmp_path_factory.mktemp("run") / "c.safetensors"
    write_checkpoint(path, 7, state, {"note": "x"})
    found = read_checkpoint(path)
    assert (found.step, found.metadata) == (7, {"note": "x"})
    assert same(state, found.state)


STATE = {"model": {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}, "lr": 0.1}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return save_checkpoint(tmp_path_factory.mktemp("run"), 1, **STATE).read_bytes()


@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_damage_anywhere_is_found(tmp_path_factory, whole, data):
    path = tmp_path_factory.mktemp("run") / "checkpoint-00000002.safetensors"
    if data.draw(st.booleans()):
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    else:
        damaged = bytearray(whole)
        damaged[data.draw(st.integers(len(whole) - 48, len(whole) - 1))] ^= data.draw(
            st.integers(1, 255))
        path.write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        read_checkpoint(path)


def test_the_previous_file_is_named(tmp_path, whole):
    for step in range(5):
        save_checkpoint(tmp_path, step, keep=3, **STATE)
    files = checkpoint_files(tmp_path)
    assert [f.name for f in files] == [f"checkpoint-{n:08d}.safetensors" for n in (2, 3, 4)]
    assert load_checkpoint(tmp_path).step == 4
    files[-1].write_bytes(whole[:50])
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path)
    assert str(files[-2]) in str(caught.value)
    assert load_checkpoint(files[-2]).step == 3


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = save_checkpoint(tmp_path, 1, **STATE)
    before = path.read_bytes()

    def fails(_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(CheckpointError, match="cannot be written"):
        save_checkpoint(tmp_path, 1, other=np.ones(3))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_parts_are_restored_by_name(tmp_path):
    first, second = (DataLoader(ArrayDataset(np.arange(9)), 2, shuffle=True) for _ in range(2))
    batches = iter(first)
    next(batches)
    save_checkpoint(tmp_path, 3, loader=first, w=np.ones(2))
    found = load_checkpoint(tmp_path, loader=second)
    np.testing.assert_array_equal(found.state["w"], np.ones(2))
    assert [list(b) for b in second] == [list(b) for b in batches]
    with pytest.raises(CheckpointError, match="lacks"):
        load_checkpoint(tmp_path, optimizer=second)


def test_what_cannot_be_saved_or_read(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be saved") as caught:
        save_checkpoint(tmp_path, 1, a={"b": [object()]})
    assert caught.value.where == "a.b.0"
    with pytest.raises(CheckpointError, match="a key"):
        save_checkpoint(tmp_path, 1, a={1.5: 2})
    with pytest.raises(CheckpointError, match="keep"):
        save_checkpoint(tmp_path, 1, keep=0)
    with pytest.raises(CheckpointError, match="without checkpoints"):
        load_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(tmp_path / "none.safetensors")
    from safetensors.numpy import save_file

    save_file({"x": np.ones(2)}, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="no checkpoint of weft"):
        load_checkpoint(tmp_path / "other.safetensors")
