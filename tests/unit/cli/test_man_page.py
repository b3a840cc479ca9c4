"""``weft --man``: the manual page has every command and option, and no stray commands of roff."""

from __future__ import annotations

import re

from tests.unit.cli.commands import run
from weft.cli.main import _VERBS

MACROS = {"TH", "SH", "SS", "B", "PP", "TP", "nf", "fi"}


def test_the_page_has_every_command_and_no_stray_line_of_roff(capsys):
    code, page, err = run(["--man"], capsys)
    assert code == 0, err
    assert page.startswith(".TH WEFT 1")
    for verb in _VERBS:
        assert f'.SS "weft {verb} ' in page
    assert r"\-\-against\-target" in page
    assert r"weft view model.onnx" in page
    assert {match[1] for match in re.finditer(r"^\.(\w+)", page, re.MULTILINE)} <= MACROS
    assert "\b" not in page
