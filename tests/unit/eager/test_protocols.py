"""Protocols of Python and of array libraries; generators; bad input."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft


def test_copies_and_pickles_are_leaves_of_their_own() -> None:
    x = weft.tensor([1.0, 2.0], requires_grad=True)
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x)):
        assert other.requires_grad
        assert other.is_leaf
        with weft.no_grad():
            other.zero_()
        assert x.tolist() == [1.0, 2.0]


def test_arrays_of_other_libraries() -> None:
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]])
    array = np.arange(4, dtype=np.float32).reshape(2, 2)
    assert np.asarray(x).dtype == np.float32
    assert np.from_dlpack(x).tolist() == weft.from_dlpack(array + 1).tolist() == x.tolist()
    assert type(array + x) is weft.Tensor
    assert (array @ x).tolist() == (array @ np.asarray(x)).tolist()
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1
    assert np.zeros(1, weft.float16).dtype == weft.float16 == "float16"
    assert pickle.loads(pickle.dumps(weft.bfloat16)) is weft.bfloat16


def test_memory_that_is_read_only_is_shared_and_other_memory_copied() -> None:
    array = np.arange(4, dtype=np.float32)
    copied = weft.from_dlpack(array)
    array[0] = 9
    assert copied.tolist() == [0, 1, 2, 3]
    array.flags.writeable = False
    shared = weft.from_dlpack(array)
    assert np.shares_memory(shared.numpy(), array)
    assert np.shares_memory(np.asarray(shared), np.from_dlpack(shared))
    shared[0] = 1.0
    assert (shared.tolist(), array[0]) == ([1, 1, 2, 3], 9)
    part = weft.from_dlpack(shared)
    part += 1
    assert shared.tolist() == [2, 2, 3, 4]


def test_python_protocols() -> None:
    x = weft.tensor([[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    assert len(x) == 2
    assert (int(x[0, 1]), float(x[1, 0]), bool(x[0, 0])) == (2, 3.0, True)
    assert [10, 20, 30][x[0, 1]] == 30
    assert x in {x: "by identity"}
    assert repr(x * 1.5) == "tensor([[1.5, 3. ],\n        [4.5, 6. ]])"
    assert repr(weft.ones(1, requires_grad=True) * 2) == "tensor([2.], grad_fn=<multiply>)"
    assert f"{x.sum():03d}" == "010"


def test_a_generator_continues_from_its_state() -> None:
    generator = weft.Generator(3)
    first = weft.rand(4, generator=generator).tolist()
    state = generator.get_state()
    second = weft.randn(4, generator=generator).tolist()
    generator.set_state(state)
    assert weft.randn(4, generator=generator).tolist() == second
    assert weft.rand(4, generator=generator.manual_seed(3)).tolist() == first
    assert sorted(weft.randperm(9).tolist()) == list(range(9))


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda: weft.ones(2, device="cuda:99"), "no CUDA driver|no device cuda:99"),
    (lambda: bool(weft.ones(2)), "several elements"),
    (lambda: weft.ones(2, 2).reshape(3), "does not fit"),
    (lambda: weft.cat([]), "at least one"),
    (lambda: weft.tensor([[1], [2, 3]]), "equal lengths"),
    (lambda: weft.tensor("a"), "cannot be those of a tensor"),
    (lambda: weft.ones(2, 2) @ weft.ones(3), "do not match"),
    (lambda: weft.ones(2).sum(3), "out of range"),
    (lambda: weft.ones(2, dtype="float31"), "unknown dtype"),
    (lambda: weft.ones(2).double() @ weft.ones(2), "different dtypes"),
    (lambda: weft.arange(3).mean(), "not floating point"),
])
def test_bad_input(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(weft.WeftError, match=message):
        wrong()
