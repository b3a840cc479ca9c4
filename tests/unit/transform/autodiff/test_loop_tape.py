"""Gradients of loops whose tape is in tensors, against the steps one by one."""

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import parse_program
from weft.transform.autodiff.reverse.gradient import Gradient
from weft.transform.autodiff.reverse.loop_tape import BOUNDED

INT, V, B = "Tensor[(), int32]", "Tensor[(3,), float64]", "Tensor[(), bool]"

# Two ends that go on, a value that all steps read, and a flag that the derivative reads.
BRANCHES = f"""
    def @loop(%k: {INT}, %n: {INT}, %flag: {B}, %w: {V}, %x: {V}) -> {V} {{
      if (less(%k, %n)) {{
        if (%flag) {{ @loop(add(%k, 1), %n, logical_not(%flag), %w, tanh(multiply(%x, %w))) }}
        else {{ @loop(add(%k, 1), %n, logical_not(%flag), %w, @cell(%x, %w)) }}
      }} else {{ multiply(%x, %w) }}
    }}
    def @cell(%x: {V}, %w: {V}) -> {V} {{ add(sin(%x), multiply(%w, %w)) }}
    def @main(%n: {INT}, %w: {V}, %x: {V}) {{ @loop(0, %n, True, %w, %x) }}"""
LINEAR = f"""
    def @loop(%k: {INT}, %w: {V}, %x: {V}) -> {V} {{
      if (less_equal(%k, 0)) {{ %x }} else {{ @loop(subtract(%k, 1), %w, add(%x, %w)) }}
    }}
    def @main(%n: {INT}, %w: {V}, %x: {V}) {{ @loop(%n, %w, %x) }}"""


def _branches(n: int, w: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of ``w`` and ``x``, by forward mode over each element alone."""
    dw, dx = np.zeros(3), np.ones(3)
    for k in range(n):
        if k % 2 == 0:
            slope = 1 - np.tanh(x * w) ** 2
            dw, dx, x = slope * (x + w * dw), slope * w * dx, np.tanh(x * w)
        else:
            dw, dx, x = np.cos(x) * dw + 2 * w, np.cos(x) * dx, np.sin(x) + w * w
    return x + w * dw, w * dx


def _linear(n: int, w: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full(3, float(n)), np.ones(3)


@pytest.mark.parametrize(("text", "expected"), [(BRANCHES, _branches), (LINEAR, _linear)],
                         ids=["branches", "linear"])
def test_segments_have_the_gradients_of_steps(text, expected):
    after = Gradient()(parse_program(text))
    rows = max(param.annotation.shape[0] for fn in after.functions.values()
               if BOUNDED in fn.attrs for param in fn.params if param.annotation.ndim)
    module = weft.compile(after)
    w, x = np.array([0.9, 0.7, -0.8]), np.array([0.5, -1.0, 0.1])
    for count in (0, 1, 2, rows - 1, rows, rows + 1, 2 * rows + 7):
        _, *found = module(np.int32(count), w, x)
        for one, wanted in zip(found, expected(count, w, x), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=1e-9, atol=1e-12)


def test_segments_are_kernels_that_artifacts_keep(tmp_path):
    module = weft.compile(Gradient()(parse_program(BRANCHES)))
    steps = [kernel for kernel in module.manifest.vm.kernels if kernel.implementation == "loop"]
    assert len(steps) == 2  # forward and backward
    module.export(tmp_path / "loop.weft")
    values = np.int32(900), np.full(3, 0.9), np.full(3, 0.5)
    for one, wanted in zip(weft.load(tmp_path / "loop.weft")(*values), module(*values),
                           strict=True):
        np.testing.assert_array_equal(one, wanted)


def test_large_states_and_other_recursion_keep_closures():
    large = BRANCHES.replace("(3,)", "(200000,)")
    deep = f"""
        def @grow(%k: {INT}, %x: {V}) -> {V} {{
          if (less_equal(%k, 0)) {{ %x }} else {{ tanh(@grow(subtract(%k, 1), %x)) }}
        }}
        def @main(%n: {INT}, %x: {V}) {{ @grow(%n, %x) }}"""
    for text in (large, deep):
        after = Gradient()(parse_program(text))
        assert not any(BOUNDED in fn.attrs for fn in after.functions.values())
