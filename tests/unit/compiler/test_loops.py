"""Loops in first-order programs are loops of the compiled ``main``."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from tests.unit.compiler.loop_programs import loop_texts
from tests.unit.compiler.vm.helpers import check, on_the_machine
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import lower_program, try_lower_program
from weft.compiler.program.memory_plan import live_ranges
from weft.ir import IRModule, infer_type
from weft.ir.expr import Function, Tuple, TupleGetItem, const, var
from weft.ir.python.builder import while_loop
from weft.runtime.manifest import Manifest
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("cache_of_module", "verified_once")

X = np.float32([[1, -2, 3], [4, 5, -6]])
POWERS = """
def @main(%n: int32, %x: Tensor[(2, 3), float32]) {
  let %loop = fn (%i: int32, %s: Tensor[(2, 3), float32]) -> (int32, Tensor[(2, 3), float32]) {
    if (less(%i, %n)) { %loop(add(%i, 1), tanh(add(%s, %x))) } else { (%i, %s) }
  };
  %loop(0, %x)
}"""


def lowered(mod):
    return run_pipeline(infer_type(mod), CompileOptions.make())


def compiled(mod):
    module = weft.compile(mod)
    assert module.manifest.vm is None
    return module


def agree(text, *inputs):
    """Compiled as one ``main``, on the virtual machine and in the interpreter."""
    mod = weft.parse(text)
    module, machine = compiled(mod), on_the_machine(mod)
    for values in inputs:
        expected = evaluate(mod, list(values))
        check(module(*values), expected)
        check(machine(*values), expected)
    return module


@pytest.mark.parametrize("opt_level", [0, 3])
def test_no_round_one_and_many(opt_level):
    mod = weft.parse(POWERS)
    module = weft.compile(mod, opt_level=opt_level)
    assert module.manifest.vm is None
    assert len(module.manifest.jumps) == 1
    for n in (-1, 0, 1, 10):
        check(module(np.int32(n), X), evaluate(mod, [np.int32(n), X]))


def test_loops_of_the_builder():
    n, x = var("n", (), "int32"), var("x", (2, 3))
    loop = while_loop(lambda i, s: op.less(i, n), lambda i, s: (i + 1, op.multiply(s, x)),
                      const(0), x)
    mod = infer_type(IRModule.from_expr(Function((n, x), TupleGetItem(loop, 1))))
    np.testing.assert_allclose(compiled(mod)(np.int32(3), X), X**4)


def test_global_functions_that_call_each_other():
    agree("""
        def @even(%n: int32, %s: int32) -> (bool, int32) {
          if (less_equal(%n, 0)) { (True, %s) } else { @odd(subtract(%n, 1), add(%s, %n)) }
        }
        def @odd(%n: int32, %s: int32) -> (bool, int32) {
          if (less_equal(%n, 0)) { (False, %s) } else { @even(subtract(%n, 1), %s) }
        }
        def @main(%n: int32) { (@even(%n, 0), @odd(%n, 1)) }""",
          *[(np.int32(n),) for n in (0, 1, 7, 8)])


@pytest.mark.parametrize("body", [
    "if (less(0, %n)) { @main(subtract(%n, 1), add(%x, 1f)) } else { %x }",
    "if (less(0, %n)) { @half(%n, %x) } else { multiply(%x, 3f) }",
])
def test_main_may_be_the_loop(body):
    text = f"""
    def @half(%n: int32, %x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {{
      if (less(4, %n)) {{ @main(subtract(%n, 2), multiply(%x, 2f)) }}
      else {{ @main(subtract(%n, 1), add(%x, 1f)) }}
    }}
    def @main(%n: int32, %x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {{ {body} }}"""
    module = agree(text, (np.int32(0), X), (np.int32(1), X), (np.int32(7), X))
    assert len(module.manifest.jumps) >= 1


def test_an_inner_loop_may_end_in_the_next_round_of_the_outer():
    agree("""
        def @main(%n: int32, %m: int32) {
          let %outer = fn (%i: int32, %s: int32) -> int32 {
            let %inner = fn (%j: int32, %t: int32) -> int32 {
              if (less(%j, %m)) { %inner(add(%j, 1), add(%t, %i)) }
              else { if (less(%i, %n)) { %outer(add(%i, 1), %t) } else { %t } }
            };
            %inner(0, %s)
          };
          %outer(0, 100)
        }""", *[(np.int32(n), np.int32(m)) for n in (0, 3) for m in (0, 1, 4)])


def test_values_that_go_in_circles_and_one_that_is_the_condition():
    agree("""
        def @main(%n: int32, %x: Tensor[(2, 3), float32]) {
          let %loop = fn (%i: int32, %go: bool, %a: Tensor[(2, 3), float32],
                          %b: Tensor[(2, 3), float32], %c: (Tensor[(2, 3), float32], int32))
              -> (int32, Tensor[(2, 3), float32], Tensor[(2, 3), float32],
                  (Tensor[(2, 3), float32], int32)) {
            if (%go) { %loop(add(%i, 1), less(%i, %n), %b, %c.0, (%a, %i)) }
            else { (%i, %a, %b, %c) }
          };
          %loop(0, True, %x, tanh(%x), (exp(%x), 7))
        }""", *[(np.int32(n), X) for n in (0, 1, 2, 5)])


def test_what_never_changes_is_not_copied():
    mod = weft.parse("""
        def @power(%n: int32, %x: Tensor[(64, 64), float32], %s: Tensor[(64, 64), float32])
            -> Tensor[(64, 64), float32] {
          if (less(%n, 1)) { %s } else { @power(subtract(%n, 1), %x, nn.matmul(%s, %x)) }
        }
        def @main(%n: int32, %x: Tensor[(64, 64), float32]) { @power(%n, %x, %x) }""")
    program = lower_program(lowered(mod))
    copies = [s for s in program.steps if program.kernels[s.kernel].text == "copy"]
    assert len(copies) == 3  # into %n and %s before the loop, and into %s at its end
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32) / 8
    np.testing.assert_allclose(compiled(mod)(np.int32(3), x), x @ x @ x @ x, rtol=1e-4, atol=1e-5)


def test_a_value_is_written_where_the_next_round_reads_it():
    mod = weft.parse("""
        def @main(%n: int32, %w: Tensor[(8, 8), float32], %x: Tensor[(4, 8), float32]) {
          let %loop = fn (%i: int32, %s: Tensor[(4, 8), float32]) -> Tensor[(4, 8), float32] {
            if (less(%i, %n)) {
              %loop(add(%i, 1), nn.relu(nn.matmul(nn.softmax(nn.matmul(%s, %w)), %w)))
            } else { %s }
          };
          %loop(0, %x)
        }""")
    program = lower_program(lowered(mod))
    inside = [s for s in program.steps if s.path]
    copied = [s for s in inside if program.kernels[s.kernel].text == "copy"]
    assert not copied  # the counter is counted up in place
    w, x = np.eye(8, dtype=np.float32), np.ones((4, 8), np.float32)
    inputs = [np.int32(5), w, x]
    check(compiled(mod)(*inputs), evaluate(mod, inputs))


def test_what_a_loop_reads_lives_as_long_as_the_loop():
    # The exponential is only used inside and the same every round: it is computed before.
    mod = weft.parse("""
        def @main(%n: int32, %x: Tensor[(2, 3), float32]) {
          let %y = exp(%x);
          let %loop = fn (%i: int32, %s: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {
            if (less(%i, %n)) { %loop(add(%i, 1), tanh(tanh(add(%s, %y)))) } else { %s }
          };
          %loop(0, %x)
        }""")
    program = lower_program(run_pipeline(mod, CompileOptions.make(opt_level=0)))
    ranges = live_ranges(program.steps, program.jumps)
    (jump,) = program.jumps
    texts = [program.kernels[s.kernel].text for s in program.steps]
    exp = program.steps[texts.index("exp")]
    (made,) = exp.writes
    assert exp.path == ()
    assert ranges[made.index].last == jump.at - 1
    assert live_ranges(program.steps)[made.index].last < jump.at - 1
    inputs = [np.int32(6), X]
    check(weft.compile(mod, opt_level=0)(*inputs), evaluate(mod, inputs))


def test_artifacts_and_manifests_have_the_loops(tmp_path):
    mod = weft.parse(POWERS)
    module = compiled(mod)
    assert Manifest.from_json(module.manifest.to_json()) == module.manifest
    module.export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    for n in (0, 4):
        check(loaded(np.int32(n), X), evaluate(mod, [np.int32(n), X]))


def test_profiles_count_every_round(capsys):
    module = compiled(weft.parse(POWERS))
    calls = {k.op: k.calls for k in module.profile(np.int32(3), X, repeat=2).kernels}
    assert calls["less"] == 4
    assert calls["add + tanh"] == 3
    with weft.config(debug=2):
        watched = weft.compile(weft.parse(POWERS))
        capsys.readouterr()
        watched(np.int32(3), X)
    lines = capsys.readouterr().err.splitlines()
    assert sum("tanh" in line for line in lines) == 3


@pytest.mark.parametrize("body", [
    "if (less(%n, 1)) { 1 } else { multiply(%n, @f(subtract(%n, 1))) }",  # not a tail call
    "@f(add(%n, 1))",  # no end
    """if (less(%n, 1)) { 0 } else {
      let %g = if (less(%n, 5)) { fn (%k: int32) { negative(%k) } } else { fn (%k: int32) { %k } };
      %g(%n)
    }""",  # a function that is computed
])
def test_what_is_no_loop_runs_on_the_machine(body):
    mod = weft.parse(f"def @f(%n: int32) -> int32 {{ {body} }} "
                     "def @main(%n: int32) { @f(%n) }")
    assert try_lower_program(lowered(mod)) is None
    if "add(" not in body:
        check(weft.compile(mod)(np.int32(4)), evaluate(mod, [np.int32(4)]))


def test_functions_that_double_at_every_call_do_not_fill_the_memory():
    doubling = "".join(f"def @f{n}(%x: int32) -> int32 {{ add(@f{n - 1}(%x), @f{n - 1}(%x)) }}\n"
                       for n in range(1, 40))
    mod = weft.parse(f"def @f0(%x: int32) -> int32 {{ negative(%x) }}\n{doubling}"
                     "def @main(%x: int32) { @f39(%x) }")
    assert try_lower_program(mod) is None


def test_a_loop_of_a_million_rounds_keeps_to_its_arena():
    module = agree("""
        def @main(%n: int32) {
          let %loop = fn (%i: int32, %s: int32) -> int32 {
            if (less(%i, %n)) { %loop(add(%i, 1), bitwise_xor(%s, %i)) } else { %s }
          };
          %loop(0, 0)
        }""", (np.int32(5),))
    assert module(np.int32(1_000_000)) == np.bitwise_xor.reduce(np.arange(1_000_000))
    assert module.manifest.arena_bytes <= 1024


@settings(max_examples=15, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(text=loop_texts(), x=st.integers(-3, 6), y=st.integers(-3, 6))
def test_random_loops(text, x, y):
    mod = weft.parse(text)
    inputs = [np.int32(x), np.int32(y), np.int32([x, -y])]
    expected = evaluate(mod, inputs)
    module = weft.compile(mod)
    assert module.manifest.vm is None
    check(module(*inputs), expected)
    check(on_the_machine(mod)(*inputs), expected)
    with weft.config(debug=2):  # one by one, in Python
        stepwise = weft.compile(mod)
    check(stepwise(*inputs), expected)


def test_a_tuple_of_loops_and_choices_between_them():
    c, n, x = var("c", (), "bool"), var("n", (), "int32"), var("x", (2, 3))

    def loop(function):
        made = while_loop(lambda i, s: op.less(i, n), lambda i, s: (i + 1, function(s)),
                          const(0), x)
        return TupleGetItem(made, 1)

    chosen = weft.ir.If(c, loop(op.tanh), Tuple((loop(op.negative), x))[0])
    mod = infer_type(IRModule.from_expr(Function((c, n, x), Tuple((chosen, loop(op.abs))))))
    module = compiled(mod)
    for flag in (True, False):
        inputs = [np.bool_(flag), np.int32(3), X]
        check(module(*inputs), evaluate(mod, inputs))
