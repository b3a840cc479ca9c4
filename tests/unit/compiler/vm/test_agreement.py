"""The reference interpreter, the virtual machine and the compiled ``main`` agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.unit.compiler.vm.helpers import check, on_the_machine
from tests.unit.compiler.vm.programs import texts
from tests.unit.transform.helpers import random_inputs
from tests.unit.transform.random_programs import programs
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("cache_of_module", "verified_once")

bounded = settings(max_examples=25, deadline=None, derandomize=True,
                   suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@bounded
@given(mod=programs(max_steps=6, control=True))
def test_tensor_programs_with_control_flow(mod):
    inputs = random_inputs(mod["main"])
    check(on_the_machine(mod)(*inputs), evaluate(mod, inputs), rtol=1e-3)


@bounded
@given(mod=programs(max_steps=5))
def test_first_order_programs_three_ways(mod):
    inputs = random_inputs(mod["main"])
    expected = evaluate(mod, inputs)
    compiled = weft.compile(mod)
    assert compiled.manifest.vm is None
    check(compiled(*inputs), expected, rtol=1e-3)
    check(on_the_machine(mod)(*inputs), expected, rtol=1e-3)


@bounded
@given(text=texts(), a=st.integers(-9, 9), b=st.integers(-9, 9),
       opt_level=st.sampled_from([0, 3]))
def test_functional_programs(text, a, b, opt_level):
    mod = weft.parse(text)
    inputs = [np.int32(a), np.int32(b)]
    check(on_the_machine(mod, opt_level)(*inputs), evaluate(mod, inputs))


@bounded
@given(text=texts(), a=st.integers(-9, 9), b=st.integers(-9, 9))
def test_whatever_compile_chooses(text, a, b):
    mod = weft.parse(text)
    options = CompileOptions.make()
    module = weft.compile(mod)
    assert (module.manifest.vm is None) == (
        try_lower_program(run_pipeline(mod, options)) is not None)
    inputs = [np.int32(a), np.int32(b)]
    check(module(*inputs), evaluate(mod, inputs))
