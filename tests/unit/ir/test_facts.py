"""What passes need and provide: facts of programs, attributes of modules, and the errors."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest

from weft.compiler.pipeline import PIPELINE
from weft.ir import FACTS, PASSES, IRModule, infer_type, parse, parse_pipeline, register_fact
from weft.ir.expr import Function
from weft.ir.passes import Pass, PassContext, Sequential, has_fact, run_pass
from weft.support.errors import PassError, RegistryError
from weft.transform import SimplifyExpr, ToANormalForm, ToGraphNormalForm

PROGRAM = "def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); add(%a, multiply(%a, 1f)) }"
GENERIC = """
def @main(%x: Tensor[(2,), float32]) { @same(%x) }
def @same[A](%x: A) -> A { %x }"""
HIGHER = """
def @main(%x: Tensor[(2,), float32]) {
  let %r = ref(%x);
  let %f = fn (%y: Tensor[(2,), float32]) -> Tensor[(2,), float32] { add(%y, ref_read(%r)) };
  @twice(%f, %x)
}
def @twice(%f: fn (Tensor[(2,), float32]) -> Tensor[(2,), float32], %x: Tensor[(2,), float32]) {
  %f(%f(%x))
}"""


def program(text: str = PROGRAM) -> IRModule:
    return infer_type(parse(text))


@dataclass(frozen=True)
class Calibrate(Pass):
    """Provides a fact without a predicate, and an attribute."""

    name: ClassVar[str] = "calibrate"
    provides: ClassVar[tuple[str, ...]] = ("calibrated", "scales")
    with_scales: bool = True

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod.with_attrs(scales=(1.0,)) if self.with_scales else mod


@dataclass(frozen=True)
class Quantize(Pass):
    """Needs both, and changes nothing."""

    name: ClassVar[str] = "quantize"
    depends: ClassVar[tuple[str, ...]] = ("calibrated", "scales")

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return mod


@dataclass(frozen=True)
class Rename(Pass):
    """Changes the program, and keeps one fact."""

    name: ClassVar[str] = "rename"
    preserves: ClassVar[tuple[str, ...]] = ("calibrated",)

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        main = mod["main"]
        return mod.with_function("main", Function(main.params, main.body, attrs={"renamed": True}))


@pytest.fixture(autouse=True)
def registered():
    register_fact("calibrated", "with measured ranges")
    PASSES.register("calibrate", Calibrate)
    yield
    FACTS.remove("calibrated")
    PASSES.remove("calibrate")


def run(pass_: Pass, mod: IRModule) -> IRModule:
    return run_pass(pass_, mod, PassContext())


def test_a_pass_without_what_it_needs_is_refused():
    with pytest.raises(PassError, match="quantize needs a program with measured ranges") as info:
        run(Quantize(), program())
    assert "run calibrate before" in info.value.render()
    after = run(Calibrate(), program())
    assert after.known_facts == {"calibrated"}
    run(Quantize(), after)
    run(Sequential((Calibrate(), Quantize())), program())


def test_facts_are_forgotten_unless_they_are_preserved():
    after = run(Calibrate(), program())
    assert run(Rename(), after).known_facts == {"calibrated"}
    assert run(SimplifyExpr(), after).known_facts == frozenset()
    assert run(SimplifyExpr(), run(SimplifyExpr(), program())).known_facts == frozenset()
    # A pass that changes nothing forgets nothing, a change by hand everything.
    assert run(Quantize(), after).known_facts == {"calibrated"}
    by_hand = after.with_function("other", after["main"])
    assert by_hand.known_facts == frozenset()
    assert dataclasses.replace(after, functions={}).known_facts == frozenset()


def test_attributes_of_the_module_are_needed_and_provided():
    without = dataclasses.replace(run(Calibrate(), program()), attrs={})
    with pytest.raises(PassError, match="needs the attribute 'scales' of the module") as info:
        run(Quantize(), without)
    assert "run calibrate before" in info.value.render()
    with pytest.raises(PassError, match="did not provide the attribute 'scales'"):
        run(Calibrate(with_scales=False), program())


def test_facts_with_a_predicate_are_looked_up():
    assert not has_fact(program(), "graph_normal_form")
    after = run(ToGraphNormalForm(), program())
    assert after.known_facts == {"graph_normal_form"}
    assert has_fact(run(SimplifyExpr(), after), "graph_normal_form")
    assert not has_fact(run(ToANormalForm(), after), "graph_normal_form")
    with pytest.raises(RegistryError, match="registered twice"):
        register_fact("graph_normal_form", "again")


@pytest.mark.parametrize("name", [n for n in FACTS if n != "calibrated"])
def test_what_passes_provide_holds(name):
    provider = next(n for n in PASSES if name in PASSES.get(n).provides)
    for text in (PROGRAM, HIGHER):
        needed = {"store_passing": "lambda_lift,defunctionalization,"}.get(provider, "")
        after = parse_pipeline(f"{needed}{provider}")(program(text))
        assert has_fact(after, name)
        assert FACTS.get(name).holds(after)


@pytest.mark.parametrize(("passes", "text", "what", "help_"), [
    ("defunctionalization", GENERIC, "needs a program without generic functions",
     "run monomorphize before"),
    ("store_passing", HIGHER, "needs a program without functions as values",
     "run defunctionalization before"),
])
def test_passes_of_weft_say_which_pass_comes_before(passes, text, what, help_):
    with pytest.raises(PassError, match=what) as info:
        parse_pipeline(passes)(program(text))
    assert help_ in info.value.render()


def test_every_pass_names_known_facts_and_the_pipeline_meets_its_needs():
    known: set[str] = set()
    for pass_ in (p for phase in PIPELINE for p in phase.passes):
        assert set(pass_.depends) <= known
        known |= set(pass_.provides)
    for name in PASSES:
        if name != "calibrate":
            assert {*PASSES.get(name).depends, *PASSES.get(name).provides} <= set(FACTS)
