"""What notebooks show: each kind of object has its text or its table, escaped."""

from __future__ import annotations

import numpy as np
import pytest

import weft
import weft.debug
from weft.ir import const, var
from weft.strategy.decision import Candidate, choose
from weft.support.markup import MAX_CHARACTERS, html_table, text_html

pytestmark = pytest.mark.usefixtures("cache_of_module")


@pytest.fixture(scope="module")
def module(cache_of_module):
    return weft.compile(weft.parse("def @main(%x: Tensor[(3,), float32]) { exp(tanh(%x)) }"))


def test_programs_show_their_text_without_the_data_of_constants():
    body = weft.op.add(var("x", (400,)), const(np.arange(400, dtype=np.float32)))
    for shown in (body, weft.IRModule.from_expr(body)):
        text = shown._repr_html_()
        assert text.startswith("<pre>")
        assert "add(%x" in text
        assert len(text) < 1000
    assert "Tensor[(400,), float32]" in body._repr_html_()


def test_modules_profiles_and_comparisons_have_tables_and_texts(module):
    assert "tanh + exp" in module._repr_html_()
    profile = module.profile(np.ones(3, np.float32), repeat=1)
    shown = profile._repr_html_()
    assert "<table>" in shown
    assert "tanh + exp" in shown
    assert "width:100.0%" in shown
    assert profile.table().splitlines()[-1] in shown.replace("<p>", "").replace("</p>", "")
    program = weft.parse("def @main(%x: Tensor[(3,), float32]) { exp(tanh(%x)) }")
    found = weft.debug.compare(program, [np.ones(3, np.float32)])
    assert found._repr_html_().count("<tr>") == 1 + len(found.tensors)


def test_tensors_layers_decisions_and_checks_show_themselves():
    assert "shape (2, 2)" in weft.tensor([[1.0, 2.0], [3.0, 4.0]])._repr_html_()
    assert "in_features=4" in weft.nn.Linear(4, 3)._repr_html_()
    decision = choose([Candidate("a<b", 1e-6, None), Candidate("c", 2e-6, None)])
    assert decision._repr_html_().startswith("<pre>a&lt;b, estimated 1.0 us")
    assert "tanh" in weft.opcheck("tanh")._repr_html_()


def test_long_texts_are_cut_and_say_so():
    shown = text_html("line\n" * MAX_CHARACTERS)
    assert len(shown) < 2 * MAX_CHARACTERS
    assert f"{MAX_CHARACTERS - MAX_CHARACTERS // 5} more lines" in shown


def test_cells_of_tables_are_escaped():
    shown = html_table(("a", "share"), [("<b>", 0.5)], bars=(1,), caption="<c>")
    assert "&lt;b&gt;" in shown
    assert "<caption>&lt;c&gt;" in shown
    assert "width:50.0%" in shown
