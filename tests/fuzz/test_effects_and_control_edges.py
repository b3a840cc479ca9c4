"""Every pass keeps side effects and control edges: as many evaluations, in the same order.

``WEFT_FUZZ_EXAMPLES=2000`` runs that many programs through every pass instead of a few.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import weft
from benchmarks.deep_programs import EVERY_PASS, deep_codegen, every_pass
from tests.unit.transform.effect_operators import Effects, programs_with_effects, recording
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.ir import IRModule, infer_type, parse_pipeline, verify_module
from weft.ir.expr import Call, Function, Let, var
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform import (
    AutoControlDependencies,
    PythonCode,
    Region,
    evaluate,
    register_external_codegen,
)
from weft.transform.analysis.equivalence import arrays_of
from weft.transform.external.codegen import EXTERNAL_CODEGENS

PASSES = [text for text in every_pass() if text != "print_ir"]
# Programs without lets have no position for an effect that no result or control edge needs, and a
# batch evaluates both branches; these refuse such programs.
MAY_REFUSE = ("checkpoint_loops", "gradient", "store_passing", "vectorize")
# These take references away, or write values with tangents to them.
NO_REFERENCES = (*MAY_REFUSE, "forward_mode")
EXAMPLES = os.environ.get("WEFT_FUZZ_EXAMPLES")
RNG = np.random.default_rng(7)
INPUTS = [RNG.uniform(-1, 1, 4).astype(np.float32) for _ in range(2)]


def examples(few: int):
    return settings(max_examples=int(EXAMPLES or few), deadline=None, derandomize=not EXAMPLES,
                    database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def effects():
    with recording() as found, deep_codegen():
        yield found


def log_after(effects: Effects, name: str, mod: IRModule) -> list[object]:
    """What the transformed program records; derivatives and batches take other inputs."""
    after = parse_pipeline(name)(mod, EVERY_PASS)
    verify_module(after)
    if name == "to_cps":
        after = parse_pipeline("un_cps")(after, EVERY_PASS)
    inputs = {"vectorize": [np.stack([a]) for a in INPUTS],
              "forward_mode": [*INPUTS, *INPUTS]}.get(name, INPUTS)
    return effects.of(after, inputs)


@examples(14)
@given(data=programs_with_effects())
def test_passes_keep_effects_and_their_order(effects, data):
    expected = effects.of(data, INPUTS)
    for name in PASSES:
        try:
            got = log_after(effects, name, data)
        except PassError:
            assert name in MAY_REFUSE
            continue
        if name in NO_REFERENCES:
            got, wanted = ([e for e in log if isinstance(e, int)] for log in (got, expected))
            assert got == wanted
        else:
            assert got == expected, name


@examples(20)
@given(mod=programs_with_effects(references=False, choices=False))
def test_compiled_programs_keep_effects_and_their_order(effects, mod):
    expected = effects.of(mod, INPUTS)
    lowered = run_pipeline(mod, CompileOptions.make("cpu"))
    assert effects.of(lowered, INPUTS) == expected
    program = try_lower_program(lowered)
    assert program is not None
    tags = [node.attrs.tag for step in program.steps
            for node in post_order(program.kernels[step.kernel].function)
            if isinstance(node, Call) and node.op is effects.record]
    assert tags == expected


@examples(20)
@given(mod=programs_with_effects(references=False))
def test_control_edges_take_the_place_of_lets(effects, mod):
    """Programs become graphs, which can be differentiated, with the same effects."""
    expected = effects.of(mod, INPUTS)
    graph = AutoControlDependencies()(mod)
    verify_module(graph)
    assert effects.of(graph, INPUTS) == expected
    assert not expected or not any(isinstance(n, Let) for n in post_order(graph["main"]))
    for name, inputs in (("gradient", INPUTS), ("forward_mode", [*INPUTS, *INPUTS]),
                         ("graph_optimizer", INPUTS)):
        assert effects.of(parse_pipeline(name)(graph, EVERY_PASS), inputs) == expected, name


def _recorded(region: Region) -> PythonCode:
    """Python code that does what the region says, its effects included."""

    def call(*arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        results = tuple(arrays_of(evaluate(region.function, list(arrays))))
        return results[0] if len(results) == 1 else results

    return PythonCode(call)


@examples(6)
@given(mod=programs_with_effects(references=False, choices=False))
def test_effects_happen_in_order_when_a_compiled_program_runs(effects, mod):
    expected = effects.of(mod, INPUTS)
    register_external_codegen("recorded", supports=["test.record"], generate=_recorded)
    try:
        model = weft.compile(AutoControlDependencies()(mod), codegens=["recorded"])
        effects.log.clear()
        model(*INPUTS)
        assert effects.log == expected
        model(*INPUTS)
        assert effects.log == expected + expected
    finally:
        EXTERNAL_CODEGENS.remove("recorded")


def test_control_edges_alone_keep_an_effect_alive(effects):
    """A gradient and a batch keep an effect that a control edge orders."""
    x = var("x", (4,))
    body = op.annotation.barrier(op.tanh(x), effects.record(x, tag=3))
    mod = infer_type(IRModule.from_expr(Function((x,), body)))
    for name, inputs in (("gradient", INPUTS[:1]), ("vectorize", [INPUTS[0][None]]),
                         ("forward_mode", INPUTS)):
        assert effects.of(parse_pipeline(name)(mod, EVERY_PASS), inputs) == [3], name
