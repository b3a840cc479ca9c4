"""Each form of a model's code is chosen for a reason, before anything is built."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from weft.compiler.options import CompileOptions
from weft.compiler.program.build import build_program
from weft.compiler.program.code import ModelCode, PerShape
from weft.compiler.program.constants import OwnBlock
from weft.compiler.program.forms import FormKind, choose_form
from weft.support.fallback import recording

FIXED = "def @main(%x: Tensor[(4, 8), float32]) { nn.relu(%x) }"
SYMBOLIC = FIXED.replace("(4, 8)", "(n, 8)")
COUNTING = "def @main(%x: Tensor[(9,), float32]) { argwhere(%x) }"
RECURSIVE = """
def @f(%n: Tensor[(), int32]) -> Tensor[(), int32] {
  if (less(%n, 2)) { %n } else { add(@f(subtract(%n, 1)), @f(subtract(%n, 2))) }
}
def @main(%n: Tensor[(), int32]) { @f(%n) }
"""


def form(text: str, **options: Any) -> tuple[FormKind, str]:
    found = choose_form(weft.parse(text), CompileOptions.make(**options))
    assert (found.cause is None) == (found.kind is not FormKind.PER_SHAPE)
    return found.kind, found.reason


def test_fixed_sizes() -> None:
    assert form(FIXED) == (FormKind.FIXED, "the types of the inputs give all sizes")
    with weft.config(symbolic_sizes=False):
        assert form(COUNTING)[0] is FormKind.FIXED


def test_one_program_for_all_sizes() -> None:
    assert form(SYMBOLIC) == (FormKind.SYMBOLIC, "the inputs determine all sizes")
    assert form(COUNTING) == (FormKind.SYMBOLIC, "data determines sizes")


@pytest.mark.parametrize(("text", "settings", "options", "reason"), [
    (SYMBOLIC, {"symbolic_sizes": False}, {}, "WEFT_SYMBOLIC_SIZES=0"),
    (SYMBOLIC, {}, {"codegens": ["acc"]}, "external code generators"),
    (SYMBOLIC.replace("n, 8", "?, 8"), {}, {}, "only run time determines"),
    (SYMBOLIC.replace("n, 8", "n*m, 8"), {}, {}, "which no axis determines"),
    ("type Box { Box(Tensor[(4,), float32]) }\ndef @main(%x: Box) { %x }", {}, {},
     "unsupported type"),
])
def test_programs_per_shape(text: str, settings: dict[str, Any], options: dict[str, Any],
                            reason: str) -> None:
    with weft.config(**settings):
        kind, found = form(text, **options)
    assert kind is FormKind.PER_SHAPE
    assert reason in found


def built(text: str) -> ModelCode | PerShape:
    mod, options = weft.parse(text), CompileOptions.make()
    with recording():
        return build_program(mod, choose_form(mod, options), options, lambda _: OwnBlock())


def test_a_program_that_is_not_first_order_runs_on_the_virtual_machine() -> None:
    code = built(RECURSIVE)
    assert isinstance(code, ModelCode)
    assert code.manifest.vm is not None
    (change,) = weft.compile(weft.parse(RECURSIVE)).fallbacks.found
    assert change.what == "the virtual machine runs the program"
    assert "recursion outside of tail position" in change.cause


def test_the_form_decides_what_is_built() -> None:
    assert not built(FIXED).manifest.symbols
    assert [symbol.name for symbol in built(SYMBOLIC).manifest.symbols] == ["n"]
    assert len(built(COUNTING).manifest.counts) == 1


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_a_signature_says_why_there_is_no_program() -> None:
    found = built(SYMBOLIC.replace("n, 8", "?, 8"))
    assert isinstance(found, PerShape)
    assert "only run time determines" in found.reason
    assert found.manifest.inputs[0].shape == ("?", 8)
