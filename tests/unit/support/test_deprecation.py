"""Renamed public names: the old ones work, and warn with the new one at the line that uses them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import weft
from weft import ir
from weft.ir.rewrite.pattern import any_
from weft.ir.rewrite.rules import REGISTERED_RULES
from weft.support.deprecation import REMOVED_IN, renamed_arguments, renamed_method

PAGE = Path(__file__).parents[3] / "docs" / "renamed.md"


@pytest.mark.parametrize(("old", "new"), weft._RENAMED.items())
def test_old_names_of_weft(old, new):
    text = rf"weft\.{old} is now weft\.{new}; the old name goes with {REMOVED_IN}"
    with pytest.warns(DeprecationWarning, match=text):
        value = getattr(weft, old)
    assert value is getattr(weft, new)
    assert old not in weft.__all__
    assert new in weft.__all__


def test_an_old_name_of_a_subpackage():
    with pytest.warns(DeprecationWarning, match=r"weft\.ir\.case is now weft\.ir\.op_case"):
        assert ir.case is weft.op_case
    with pytest.raises(AttributeError, match="no attribute 'cases'"):
        _ = ir.cases


def test_register_rule_registers():
    @weft.rule(weft.op.exp(any_("x")))
    def exp_is_itself(x):
        """Nothing."""
        return x

    with pytest.warns(DeprecationWarning, match=r"is now weft\.rule\(\.\.\., register=True\)"):
        weft.register_rule(exp_is_itself)
    REGISTERED_RULES.remove("exp_is_itself")


def test_the_page_lists_every_old_name():
    listed = set(re.findall(r"`@?weft\.(\w+)", PAGE.read_text(encoding="utf-8")))
    assert {*weft._RENAMED, *weft._RENAMED.values(), "register_rule", "rule"} <= listed


def test_a_line_warns_once_and_names_the_line():
    def use(_):
        return weft.case

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        globals().pop("__warningregistry__", None)
        list(map(use, range(3)))
    assert [(w.filename, w.lineno) for w in caught] == [
        (__file__, use.__code__.co_firstlineno + 1)]


def test_old_names_of_executables(tmp_path):
    mod = weft.compile(weft.parse("def @main(%x: Tensor[(n, 2), float32]) { exp(%x) }"))
    for old, new, use, expected in (
            ("drawing", "as_svg", mod.drawing, mod.as_svg()),
            ("drawing", "as_svg", lambda: mod.drawing("import"), mod.as_svg("import")),
            ("at", "specialize", lambda: mod.at({"x": (3, 2)}), mod.specialize({"x": (3, 2)}))):
        with pytest.warns(DeprecationWarning, match=rf"\.{old} is now \w+\.{new};"):
            assert use() is expected or use() == expected
    with pytest.warns(DeprecationWarning, match=r"as_dot\(phase=\) is now as_dot\(stage=\)"):
        assert mod.as_dot(phase="lowered") == mod.as_dot("lowered")
    with pytest.warns(DeprecationWarning, match=r"export\(kind=\) is now export\(format=\)"):
        mod.export(tmp_path / "net", kind="c")
    assert (tmp_path / "net" / "main.c").is_file()


class Shape:
    def draw(self, size=1):
        return f"drawn {size}"

    paint = renamed_method("paint", "draw")


def test_an_old_method():
    with pytest.warns(DeprecationWarning, match=r"Shape\.paint is now Shape\.draw"):
        assert Shape().paint(size=2) == "drawn 2"


@renamed_arguments(width="columns")
def table(columns, rows=1):
    """A table."""
    return columns * rows


def test_an_old_argument():
    with pytest.warns(DeprecationWarning, match=r"table\(width=\) is now table\(columns=\)"):
        assert table(width=3, rows=2) == 6
    assert table(3, rows=2) == table(columns=6)
    with (pytest.warns(DeprecationWarning, match="is now"),
          pytest.raises(TypeError, match="both columns and width")):
        table(columns=1, width=2)
