"""Every pass keeps side effects and control edges: as many evaluations, in the same order.

``WEFT_FUZZ_EXAMPLES=2000`` runs that many programs through every pass instead of a few.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from benchmarks.deep_programs import EVERY_PASS, deep_codegen, every_pass
from tests.unit.transform.effect_operators import Effects, programs_with_effects, recording
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.ir import IRModule, infer_type, parse_pipeline, verify_module
from weft.ir.expr import Call, Function, var
from weft.ir.visitor import post_order
from weft.support.errors import PassError

PASSES = [text for text in every_pass() if text != "print_ir"]
# Programs without lets have no position for an effect that no result or control edge needs, and a
# batch evaluates both branches; these refuse such programs.
MAY_REFUSE = ("checkpoint_loops", "gradient", "store_passing", "vectorize")
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
        if name == "forward_mode":  # what it writes to references are values with tangents
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


def test_control_edges_alone_keep_an_effect_alive(effects):
    """A gradient and a batch keep an effect that a control edge orders."""
    x = var("x", (4,))
    body = op.annotation.barrier(op.tanh(x), effects.record(x, tag=3))
    mod = infer_type(IRModule.from_expr(Function((x,), body)))
    for name, inputs in (("gradient", INPUTS[:1]), ("vectorize", [INPUTS[0][None]]),
                         ("forward_mode", INPUTS)):
        assert effects.of(parse_pipeline(name)(mod, EVERY_PASS), inputs) == [3], name
