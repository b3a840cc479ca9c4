"""A program gives the same bytes on one device and on several, wherever its steps are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.unit.compiler.devices.graphs import graph_texts
from tests.unit.compiler.devices.placing import compiled_at_random, sims, within
from tests.unit.compiler.loop_programs import loop_texts
from weft.support.errors import TargetError

pytestmark = pytest.mark.usefixtures("cache_of_module")

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]


def same(results, expected):
    for one, other in zip(_flat(results), _flat(expected), strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def _flat(value):
    if isinstance(value, tuple):
        return [one for part in value for one in _flat(part)]
    return [np.asarray(value)]


def agrees(model, values, count, seed, **options):
    expected = weft.compile(model, **options)(*values)
    mod = compiled_at_random(model, count, seed, **options)
    for _ in range(3):  # arenas are used again
        same(within(60, lambda: mod(*values)), expected)
    return mod


@given(graph_texts(), st.integers(1, 4), st.integers(0, 1 << 30), st.sampled_from([0, 3]))
@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=_QUIET)
def test_graphs(text, count, seed, opt_level):
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal((8, 8)).astype(np.float32) for _ in range(2)]
    agrees(weft.parse(text), values, count, seed, opt_level=opt_level)


@given(graph_texts(most=6), st.integers(2, 3), st.integers(0, 1 << 30))
@settings(max_examples=3, deadline=None, suppress_health_check=_QUIET)
def test_small_graphs(text, count, seed):
    values = [np.full((8, 8), value, np.float32) for value in (0.5, -0.25)]
    agrees(weft.parse(text), values, count, seed, opt_level=0)


@given(graph_texts(annotations=3), st.sampled_from([0, 3]))
@settings(max_examples=12, deadline=None, suppress_health_check=_QUIET)
def test_annotations(text, opt_level):
    """The same bytes as with all devices mapped to one, which has the same borders."""
    model = weft.parse(text)
    try:
        mod = weft.compile(model, devices=sims(3), opt_level=opt_level)
    except TargetError:  # annotations may contradict each other
        return
    one = weft.compile(model, devices=["sim:0"], soft_placement=True, opt_level=opt_level)
    plain = weft.compile(model, opt_level=opt_level)
    values = [np.full((8, 8), value, np.float32) for value in (0.5, -0.25)]
    expected = one(*values)
    same(within(60, lambda: mod(*values)), expected)
    same(plain(*values), expected)


@given(graph_texts(most=10), st.integers(2, 4))
@settings(max_examples=4, deadline=None, suppress_health_check=_QUIET)
def test_placement_by_cost(text, count):
    model = weft.parse(text)
    values = [np.full((8, 8), value, np.float32) for value in (0.5, -0.25)]
    expected = weft.compile(model)(*values)
    mod = weft.compile(model, devices=[*sims(count), "cpu"], placement="cost")
    same(within(60, lambda: mod(*values)), expected)


def test_a_loop_is_on_one_device():
    """Its condition is read by the host; placement by cost keeps what it repeats together."""
    model = weft.parse("""
    def @main(%n: int32, %x: Tensor[(8, 8), float32], %w: Tensor[(8, 8), float32]) {
      let %loop = fn (%i: int32, %s: Tensor[(8, 8), float32]) -> Tensor[(8, 8), float32] {
        if (less(%i, %n)) { %loop(add(%i, 1), tanh(nn.dense(nn.softmax(%s), %w))) } else { %s }
      };
      (%loop(0, %x), nn.softmax(nn.dense(%w, %x)))
    }""")
    mod = weft.compile(model, devices=sims(2), placement="cost")
    repeated = mod.manifest.steps[mod.manifest.jumps[0].to:mod.manifest.jumps[0].at]
    assert len({call.device for call in repeated if call.symbol != "device_copy"}) == 1
    x, w = np.random.default_rng(0).standard_normal((2, 8, 8)).astype(np.float32)
    for n in (0, 3):
        same(mod(np.int32(n), x, w), weft.compile(model)(np.int32(n), x, w))


@given(graph_texts(size=96, most=8), st.integers(2, 3), st.integers(0, 1 << 30))
@settings(max_examples=5, deadline=None, suppress_health_check=_QUIET)
def test_kernels_that_work_in_place(text, count, seed):
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal((96, 96)).astype(np.float32) for _ in range(2)]
    agrees(weft.parse(text), values, count, seed, opt_level=0)


@given(loop_texts(), st.integers(1, 3), st.integers(0, 1 << 30), st.data())
@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=_QUIET)
def test_loops_and_branches(text, count, seed, data):
    values = [np.int32(data.draw(st.integers(-2, 5))) for _ in range(2)]
    agrees(weft.parse(text), [*values, np.int32([3, -4])], count, seed)
