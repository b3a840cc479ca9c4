"""Random programs of tensors against NumPy, whenever values are looked at; interrupts, threads."""

from __future__ import annotations

import _thread
import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.eager.evaluate import AUTO_CUT
from weft.eager.program_cache import PROGRAMS

UNARY = {"neg": lambda x: -x, "abs": np.abs, "tanh": np.tanh, "square": np.square}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "maximum": np.maximum}
CHANGES = ("add_", "mul_", "sub_")
STEPS = st.lists(st.tuples(
    st.sampled_from([*UNARY, *BINARY, *CHANGES, "row", "assign", "look", "drop", "scale"]),
    st.integers(0, 5), st.integers(0, 5), st.floats(-1, 1, width=16)), min_size=3, max_size=25)


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=10, deadline=None)
def test_random_programs_agree_with_numpy(steps: list[tuple[str, int, int, float]]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-1, 1, (2, 3)).astype(np.float64) for _ in range(2)]
    cells = [weft.tensor(a) for a in arrays]
    for kind, i, j, number in steps:
        a, b = i % len(arrays), j % len(arrays)
        if kind in UNARY:
            arrays.append(UNARY[kind](arrays[a]))
            cells.append(getattr(cells[a], kind)())
        elif kind in BINARY:
            arrays.append(BINARY[kind](arrays[a], arrays[b]))
            cells.append(getattr(cells[a], kind)(cells[b]))
        elif kind in CHANGES:  # values before the change stay what they were
            arrays[a] = BINARY[kind[:-1]](arrays[a], np.clip(arrays[b], -1, 1))
            getattr(cells[a], kind)(cells[b].clamp(-1, 1))
        elif kind == "row":
            arrays.append(np.broadcast_to(arrays[a][j % 2], (2, 3)).copy())
            cells.append(cells[a][j % 2].expand(2, 3).clone())
        elif kind == "assign":
            arrays[a] = arrays[a].copy()
            arrays[a][j % 2] = arrays[b][1]
            cells[a][j % 2] = cells[b][1]
        elif kind == "scale":
            arrays.append(arrays[a] * number)
            cells.append(cells[a] * number)
        elif kind == "drop" and len(arrays) > 2:
            del arrays[a], cells[a]
        else:
            np.testing.assert_allclose(cells[a].numpy(), arrays[a], rtol=1e-9, atol=1e-12)
    for cell, array in zip(cells, arrays, strict=True):
        np.testing.assert_allclose(cell.numpy(), array, rtol=1e-9, atol=1e-12)


def test_numbers_that_change_become_inputs() -> None:
    x = weft.tensor([1.0] * 11)
    before = PROGRAMS.misses
    for rate in (0.5, 0.25, 0.125, -0.0, 0.0):
        assert (x * rate - 3.0).tolist() == [rate - 3.0] * 11
    assert PROGRAMS.misses - before == 2


def test_tensors_that_are_dropped_free_what_was_recorded() -> None:
    x = weft.ones(3)
    y = x * 2
    node = weakref.ref(y._node)
    gc.disable()
    try:
        del y
        assert node() is None
    finally:
        gc.enable()


def test_a_long_loop_is_cut_by_itself() -> None:
    x = weft.zeros(2)
    before = PROGRAMS.misses
    for _ in range(2 * AUTO_CUT + 100):
        x = x * 0.5
    assert PROGRAMS.misses > before  # evaluated on the way
    assert x.tolist() == [0.0, 0.0]


def test_backward_after_a_look_uses_the_values_of_the_forward_pass() -> None:
    x = weft.tensor([0.3, 0.6], requires_grad=True)
    loss = (x.tanh() * x.exp()).sum()
    loss.item()
    loss.backward()
    value = x.detach().numpy().astype(np.float64)
    expected = np.exp(value) * (np.tanh(value) + 1 - np.tanh(value) ** 2)
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)


@pytest.mark.slow
def test_steps_are_the_same_to_the_bit_for_every_number_of_threads() -> None:
    def run(threads: int) -> tuple[float, np.ndarray]:
        with weft.config(threads=threads):
            weft.manual_seed(0)
            w = weft.randn(256, 128, requires_grad=True)
            x = weft.randn(512, 128)

            @weft.train_step
            def step() -> Any:
                loss = ((x @ w.T).relu() ** 2).mean()
                loss.backward()
                with weft.no_grad():
                    w.sub_(0.1 * w.grad)
                return loss

            for _ in range(3):
                loss = step()
            return loss.item(), w.detach().numpy()

    (first, weights), *others = [run(n) for n in (1, 2, 3)]
    for loss, other in others:
        assert loss == first
        np.testing.assert_array_equal(other, weights)


@pytest.mark.slow
def test_an_interrupt_leaves_the_old_or_the_new_state() -> None:
    a, b = weft.zeros(1 << 18), weft.zeros(1 << 18)

    @weft.train_step
    def step() -> None:
        a.add_(1)
        b.add_(1)

    step()
    caught = 0
    for wait in np.linspace(0.001, 0.02, 20):
        timer = threading.Timer(float(wait), _thread.interrupt_main)
        try:
            timer.start()
            end = time.perf_counter() + 5
            while time.perf_counter() < end:
                step()
        except KeyboardInterrupt:
            caught += 1
        timer.join()
        x, y = a.numpy(), b.numpy()
        assert x.min() == x.max() == y.min() == y.max()
    assert caught == 20
