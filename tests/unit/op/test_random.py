"""Random numbers: the published answers of Threefry, streams that keep apart, distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import op, te
from weft.ir.expr import Function, TupleGetItem, const, var
from weft.ir.typing.infer import infer_expr
from weft.op.random.threefry import blocks, threefry_key
from weft.runtime.devices.cpu.threads import set_num_threads
from weft.support.errors import AttrsError, TypeInferenceError
from weft.te.lower import lower
from weft.tir.eval import evaluate as run_loops
from weft.topi import random as topi
from weft.transform import evaluate

# Key, counter and result of Threefry-2x32 with 20 rounds, as its authors publish them (the file
# of known answers of the Random123 library).
ANSWERS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("key", "counter", "answer"), ANSWERS)
def test_published_answers(key: Any, counter: Any, answer: Any) -> None:
    with np.errstate(over="ignore"):
        found = blocks(np.array(key, np.uint32), np.array([counter[0]]), counter[1])[0]
    assert tuple(found) == answer
    words = te.placeholder((4,), "uint32", name="words")
    outputs = te.compute(
        (1,), lambda _: topi.threefry((words[0], words[1]), (words[2], words[3])), name="block")
    given = np.array([*key, *counter], np.uint32)
    results = [np.zeros(1, np.uint32), np.zeros(1, np.uint32)]
    kernel = lower(te.create_schedule(outputs[0].op), [words, *outputs], "kernel")
    run_loops(kernel, given, *results)
    assert (results[0][0], results[1][0]) == answer


def drawn(call: Any, key: Any, *, threads: int = 1) -> np.ndarray:
    """The numbers that an operator draws, compiled."""
    function = Function((KEY,), TupleGetItem(call, 1))
    module = weft.compile(function)
    set_num_threads(threads)
    try:
        return module(key.data)
    finally:
        set_num_threads(None)


KEY = var("key", (2,), "uint32")


def test_the_same_on_any_number_of_threads() -> None:
    call = op.random.normal(KEY, const(0.0), const(1.0), out_shape=(300, 41))
    function = Function((KEY,), TupleGetItem(call, 1))
    key = threefry_key(7)
    one, two = (drawn(call, key, threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_allclose(one, evaluate(function, [key.data]), rtol=1e-5, atol=1e-6)


def test_distributions_have_their_moments() -> None:
    """Means, deviations and extremes of 40,000 numbers of a fixed key."""
    key, shape = threefry_key(2**40 + 3), (40_000,)
    normal = drawn(op.random.normal(KEY, const(1.0), const(2.0), out_shape=shape), key)
    assert abs(normal.mean() - 1) < 0.03
    assert abs(normal.std() - 2) < 0.03
    assert abs(((normal - 1) ** 3).mean()) < 0.3
    uniform = drawn(op.random.uniform(KEY, const(-1.0), const(3.0), out_shape=shape), key)
    assert -1 <= uniform.min() < -0.99
    assert 2.99 < uniform.max() < 3
    counts = np.histogram(uniform, 16, (-1, 3))[0]
    assert ((counts - 2500) ** 2 / 2500).sum() < 37.7  # chi squared, 15 degrees, p = 0.001
    dice = drawn(op.random.randint(KEY, out_shape=shape, start=1, stop=7), key)
    assert np.abs(np.bincount(dice, minlength=7)[1:] - 6667).max() < 300
    weights = const(np.float32([1, 0, 3]))
    chosen = drawn(op.random.multinomial(KEY, weights, num_samples=40_000), key)
    assert np.abs(np.bincount(chosen, minlength=3) - [10_000, 0, 30_000]).max() < 350


def test_keys_of_a_split_and_the_next_key_lead_to_other_streams() -> None:
    key = var("key", (2,), "uint32")
    left, right = (TupleGetItem(op.random.threefry_split(key), n) for n in (0, 1))
    after = TupleGetItem(op.random.threefry_generate(key, out_shape=(1,)), 0)
    streams = [TupleGetItem(op.random.threefry_generate(k, out_shape=(1000,)), 1)
               for k in (key, left, right, after)]
    found = [evaluate(Function((key,), s), [threefry_key(0).data]) for s in streams]
    assert len(np.unique(np.concatenate(found))) == 4000
    again = evaluate(Function((key,), streams[1]), [threefry_key(0).data])
    np.testing.assert_array_equal(again, found[1])


def test_invalid_keys_are_refused() -> None:
    with pytest.raises(TypeInferenceError, match="not a key"):
        infer_expr(op.random.threefry_split(var("k", (4,), "uint32")))
    with pytest.raises(TypeInferenceError, match="invalid range"):
        infer_expr(op.random.randint(KEY, out_shape=(2,), start=3, stop=3))
    with pytest.raises(AttrsError, match="seed out of range"):
        threefry_key(-1)
