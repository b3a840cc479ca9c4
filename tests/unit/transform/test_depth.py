"""Every registered pass over programs deeper than Python's stack, and over 2**60 paths.

The sizes here are small so that all passes run; ``python -m benchmarks.ir_scaling`` runs the same
programs through the same passes at 100,000.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import weft
from benchmarks.deep_programs import (
    EVERY_PASS,
    OPTIONS,
    call_chain,
    deep_codegen,
    every_pass,
    let_chain,
    shared_calls,
    shared_pairs,
    shared_types,
    tuple_nest,
)
from weft.ir import (
    assert_structural_equal,
    infer_type,
    parse,
    parse_pipeline,
    structural_equal,
    structural_hash,
    verify_module,
)
from weft.ir.json.format import load_json, save_json
from weft.ir.passes import PASSES
from weft.transform import check_same_values, evaluate

DEPTH = 1_200
PROGRAMS = {
    "call_chain": lambda: call_chain(DEPTH),
    "let_chain": lambda: let_chain(DEPTH),
    "shared_calls": lambda: shared_calls(60),
    "shared_pairs": lambda: shared_pairs(60),
    "tuple_nest": lambda: tuple_nest(DEPTH),
}
# These change what main takes or returns; their values have tests of their own below.
OTHER_SIGNATURES = {"forward_mode", "gradient", "to_cps", "vectorize"}


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request):
    assert sys.getrecursionlimit() <= 1_000
    return infer_type(PROGRAMS[request.param]())


@pytest.fixture(autouse=True)
def _codegen():
    with deep_codegen():
        yield


def test_options_are_those_of_registered_passes():
    assert set(OPTIONS) <= set(PASSES)
    names = {text.partition("{")[0] for text in every_pass()}
    packages = ("weft.transform.", "weft.compat.optimizer.", "weft.quantization.")
    assert {n for n in PASSES if PASSES.get(n).__module__.startswith(packages)} == names


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("text", every_pass())
def test_every_pass_runs_over_deep_programs(text, program):
    after = parse_pipeline(text)(program, EVERY_PASS)
    verify_module(after)
    if text not in OTHER_SIGNATURES:
        check_same_values(program, after)


def test_deep_programs_go_through_every_format(program):
    again = infer_type(parse(str(program)))
    assert_structural_equal(again, program)
    assert structural_hash(again) == structural_hash(program)
    assert_structural_equal(load_json(save_json(program)), program)
    verify_module(again)


@pytest.mark.parametrize("make", [call_chain, let_chain, tuple_nest])
def test_a_difference_at_the_bottom_is_found(make):
    shallow, deep = make(DEPTH), make(DEPTH + 1)
    assert not structural_equal(shallow, deep)
    assert structural_hash(shallow) != structural_hash(deep)


def test_deep_programs_have_gradients(program):
    x = np.full((2, 3), 0.25, np.float32)
    _, (found,) = evaluate(weft.value_and_grad(program, cotangent="ones"), [x])
    # The program's own results from x on either side; all are smooth, or linear, there.
    low, high = (_sum(evaluate(program, [x + np.float32(d)])) for d in (-2**-6, 2**-6))
    np.testing.assert_allclose(found.sum(), (high - low) / 2**-5, rtol=2e-2, atol=1e-6)


def test_continuations_come_back(program):
    check_same_values(program, parse_pipeline("to_cps,un_cps")(program))


def test_types_of_shared_parts_are_looked_at_once():
    program = infer_type(shared_types(60))
    for text in every_pass():
        verify_module(parse_pipeline(text)(program, EVERY_PASS))
    again = infer_type(parse(str(program)))
    assert_structural_equal(again, program)
    assert again["main"].checked_type == program["main"].checked_type


def _sum(value) -> float:
    while isinstance(value, tuple):
        (value,) = value
    return float(value.sum(dtype=np.float64))
