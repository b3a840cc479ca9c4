"""Gradients of random programs in the whole language: slopes, other forms, compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.unit.transform.helpers import parse_program
from tests.unit.transform.random_language import texts
from weft.ir.verify import verify_module
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.checkpoint.checkpoint_loops import CheckpointLoops
from weft.transform.autodiff.reverse.gradient import Gradient

STEP = 1e-6
checks = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "derandomize": True,
          "print_blob": False}
inputs = st.tuples(st.integers(0, 1000), st.integers(0, 4))


def _values(seed: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.2, 1.2, 2), rng.uniform(0.2, 1.2, 2), np.int32(count)]


def _total(value) -> float:
    return sum(map(_total, value)) if isinstance(value, tuple) else float(np.sum(value))


def _check_slopes(mod, values) -> None:
    """Central differences of two steps: where they differ, a branch changes sides between."""
    after = Gradient()(mod)
    verify_module(after)
    value, grads = evaluate(after, values)
    np.testing.assert_allclose(_total(value), _total(evaluate(mod, values)), rtol=1e-12)
    rng = np.random.default_rng(0)
    for position in (0, 1):
        direction = rng.standard_normal(2)
        slopes = [_slope(mod, values, position, direction * scale) / scale for scale in (1, 3)]
        if abs(slopes[0] - slopes[1]) > 1e-4 * max(1, abs(slopes[0])):
            continue
        found = float(np.sum(grads[position] * direction))
        assert abs(found - slopes[0]) <= 1e-5 * max(1, abs(slopes[0]))


def _slope(mod, values, position, direction) -> float:
    ahead, behind = list(values), list(values)
    ahead[position] = values[position] + STEP * direction
    behind[position] = values[position] - STEP * direction
    return (_total(evaluate(mod, ahead)) - _total(evaluate(mod, behind))) / (2 * STEP)


@settings(max_examples=25, **checks)
@given(text=texts(), arguments=inputs)
def test_slopes(text, arguments):
    _check_slopes(parse_program(text), _values(*arguments))


@pytest.mark.slow
@settings(max_examples=60, **checks)
@given(text=texts(max_steps=8), arguments=inputs)
def test_slopes_of_more_programs(text, arguments):
    _check_slopes(parse_program(text), _values(*arguments))


@pytest.mark.slow
@settings(max_examples=20, **checks)
@given(text=texts(), arguments=inputs, every=st.sampled_from([(2,), (3, 2)]))
def test_checkpoints_keep_gradients(text, arguments, every):
    mod, values = parse_program(text), _values(*arguments)
    plain = evaluate(Gradient()(mod), values)
    sparse = evaluate(Gradient()(CheckpointLoops(every=every)(mod)), values)
    np.testing.assert_allclose(sparse[1], plain[1], rtol=1e-12)


@pytest.mark.slow
@settings(max_examples=6, **checks)
@given(text=texts(max_steps=4), arguments=inputs)
def test_compiled_code_agrees_with_the_interpreter(text, arguments):
    after, values = Gradient()(parse_program(text)), _values(*arguments)
    expected = evaluate(after, values)[1]
    np.testing.assert_allclose(weft.compile(after)(*values)[-2:], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=25, **checks)
@given(text=texts(max_steps=3), arguments=inputs)
def test_second_order(text, arguments):
    """The gradient of a gradient's sum against slopes of that sum."""
    once = Gradient()(parse_program(text))
    _check_slopes(once, _values(*arguments))
