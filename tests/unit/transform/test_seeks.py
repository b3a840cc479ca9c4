"""What passes look for: a program without it is left alone, and only such a program."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tests.unit.transform.helpers import example_of, parse_program
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import make_context
from weft.ir import PASSES, IRModule, Let, PassContext, Seeks, run_pass, structural_equal
from weft.ir.passes import Pass
from weft.support.dataclass import dataclass

# ``plan_devices`` also replaces fields of tuples, which may hold copies, so its check is the only
# thing that keeps it from other programs.
SEEKING = sorted(name for name in PASSES if PASSES.get(name).seeks is not None
                 and PASSES.get(name).__module__.startswith("weft.") and name != "plan_devices")
FURTHER = (
    "def @main(%x: Tensor[(4,), float32]) { let %a = exp(%x); add(%a, %a) }",
    "def @main(%x: Tensor[(?, 2), float32]) { nn.relu(%x) }",
    "def @main(%x: Tensor[(4,), float16]) { %0 = (%x, exp(%x)); negative(%0.1) }",
)


def examples() -> list[IRModule]:
    """The programs before and after each pass that shows some."""
    shown = [PASSES.get(name) for name in PASSES if "=>" in (PASSES.get(name).__doc__ or "")]
    programs = [program for kind in shown for program in example_of(kind)]
    return programs + [parse_program(text) for text in FURTHER]


@dataclass(frozen=True)
class CountLets(Pass):
    """Counts its runs."""

    name: ClassVar[str] = "count_lets"
    seeks: ClassVar[Seeks] = Seeks(kinds=(Let,))
    runs: ClassVar[list[IRModule]] = []

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        self.runs.append(mod)
        return mod


def test_a_pass_runs_only_where_the_program_holds_what_it_seeks():
    CountLets.runs.clear()
    found, missing = (parse_program(text) for text in FURTHER[:2])
    assert run_pass(CountLets(), missing, PassContext()) is missing
    assert CountLets.runs == []
    run_pass(CountLets(), found, PassContext())
    assert CountLets.runs == [found]


@pytest.mark.parametrize(("seeks", "index"), [
    (Seeks(operators=("exp",)), 0), (Seeks(table="hooks"), 0), (Seeks(unknown_sizes=True), 1),
    (Seeks(dtype=lambda dtype: dtype.is_narrow_float), 2),
    (Seeks(operator=lambda op: op.name == "negative"), 2),
], ids=["operators", "table", "unknown sizes", "dtype", "operator"])
def test_what_can_be_sought(seeks, index):
    ctx = PassContext(config={"hooks": {"exp": None}})
    found = [seeks.may_be_in(parse_program(text).contents, ctx) for text in FURTHER]
    assert found[index]
    assert not all(found)


def test_passes_change_only_programs_that_hold_what_they_seek():
    ctx = make_context(CompileOptions.make("llvm -mcpu=haswell"))
    skipped = 0
    for program in examples():
        for name in SEEKING:
            pass_ = PASSES.get(name)()
            if not pass_.seeks.may_be_in(program.contents, ctx):
                skipped += 1
                assert structural_equal(pass_.run_module(program, ctx), program), name
    assert skipped > 100
