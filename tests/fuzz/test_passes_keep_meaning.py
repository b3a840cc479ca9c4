"""Random programs mean the same before and after every pass, and random sequences of passes.

Meaning is what the reference interpreter computes and writes to references; the compiled program,
machine code or bytecode, must agree with it. ``WEFT_FUZZ_EXAMPLES=2000`` runs that many programs
through each property instead of a few.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import weft
from benchmarks.deep_programs import EVERY_PASS, deep_codegen, every_pass
from tests.fuzz.functional_programs import texts
from tests.unit.transform.helpers import check_values
from tests.unit.transform.random_programs import programs
from weft.ir import IRModule, infer_type, parse, parse_pipeline, verify_module
from weft.support.errors import PassError
from weft.transform import check_same_values, evaluate
from weft.transform.analysis.equivalence import arrays_of, random_inputs

pytestmark = pytest.mark.usefixtures("cache_of_module", "verified_once")

# Derivatives and batches have other signatures; continuations are taken off again. A store takes
# the references away, whose number the check of values compares.
UNLIKE = {"gradient": None, "forward_mode": None, "vectorize": None, "store_passing": None,
          "checkpoint_loops": None, "to_cps": "to_cps,un_cps"}
PASSES = [UNLIKE.get(text, text) for text in every_pass() if UNLIKE.get(text, text)] + [
    "eta_expand{global_var=true}",
    "inline{max_nodes=30}",
    "inline{single_use=true}",
    "partial_eval{max_depth=3}",
    "recompute{distance=3}",
]
# These refuse programs, some of them depending on what other passes made of them.
MAY_REFUSE = ("defunctionalization", "monomorphize", "to_cps")


def examples(few: int):
    count = os.environ.get("WEFT_FUZZ_EXAMPLES")
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(
        max_examples=int(count or few), deadline=None, derandomize=not count,
        suppress_health_check=slow, database=None,
    )  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _codegen():
    with deep_codegen():
        yield


def program_of(text: str) -> IRModule:
    mod = infer_type(parse(text))
    return parse_pipeline("remove_unused_functions")(mod)


def after_passes(mod: IRModule, names: list[str]) -> IRModule:
    """The module after the passes; an example that all of them refuse does not count.

    So hypothesis complains where nearly all examples are refused.
    """
    refused = 0
    for name in names:
        try:
            mod = parse_pipeline(name)(mod, EVERY_PASS)
        except PassError:
            assert name.startswith(MAY_REFUSE), name
            refused += 1
        verify_module(mod, after=name)
    assume(not names or refused < len(names))
    return mod


@examples(90)
@given(text=texts(max_depth=2), name=st.sampled_from(PASSES), seed=st.integers(0, 3))
def test_one_pass_over_functional_programs(text, name, seed):
    mod = program_of(text)
    check_same_values(mod, after_passes(mod, [name]), seed=seed)


@examples(40)
@given(text=texts(), names=st.lists(st.sampled_from(PASSES), min_size=2, max_size=6))
def test_sequences_of_passes_over_functional_programs(text, names):
    mod = program_of(text)
    check_same_values(mod, after_passes(mod, names))


@examples(60)
@given(mod=programs(max_steps=6, control=True),
       names=st.lists(st.sampled_from([n for n in PASSES
                                       if "precision" not in n and n != "quantize"]),
                      min_size=1, max_size=5))
def test_sequences_of_passes_over_tensor_programs(mod, names):
    check_values(mod, after_passes(mod, names), rtol=1e-3)


@examples(8)
@given(text=texts(max_depth=2), names=st.lists(st.sampled_from(PASSES), max_size=3))
def test_the_machine_agrees_after_passes(text, names):
    mod = program_of(text)
    inputs = random_inputs(mod)
    got = weft.compile(after_passes(mod, names))(*inputs)
    np.testing.assert_array_equal(got, evaluate(mod, inputs))


@examples(8)
@given(mod=programs(max_steps=4, control=True),
       names=st.lists(st.sampled_from(["simplify_expr", "to_basic_block_normal_form", "inline",
                                       "lambda_lift", "partial_eval", "defunctionalization"]),
                      max_size=3))
def test_compiled_tensor_programs_agree_after_passes(mod, names):
    inputs = random_inputs(mod)
    compiled = weft.compile(after_passes(mod, names))(*inputs)
    got = compiled if isinstance(compiled, tuple) else (compiled,)
    for x, y in zip(got, arrays_of(evaluate(mod, inputs)), strict=True):
        scale = max(1.0, float(np.abs(y).max(initial=0)))
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-3 * scale)
