"""The ``.ir`` files beside this one: passes run on a program, patterns checked on the result.

``// RUN: <pipeline>`` names the passes (several such lines check several pipelines, each with the
prefix given as ``// RUN(PREFIX): <pipeline>``); ``// CHECK`` lines are FileCheck's.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

import weft.op
import weft.transform  # noqa: F401 - pipelines name passes
from weft.ir.instruments import VerifyInstrument
from weft.ir.passes import PassContext, parse_pipeline
from weft.ir.text.parser import parse

_RUN = re.compile(r"^// RUN(?:\((\w+)\))?: (.+)$", re.MULTILINE)
FILES = sorted(Path(__file__).parent.glob("*.ir"))


def runs_of(path: Path) -> list[tuple[str, str]]:
    return [(prefix or "CHECK", passes) for prefix, passes in _RUN.findall(path.read_text())]


CASES = [(path, *run) for path in FILES for run in runs_of(path)]


@pytest.mark.parametrize(
    ("path", "prefix", "passes"), CASES, ids=[f"{p.stem}-{prefix}" for p, prefix, _ in CASES]
)
def test_file(path: Path, prefix: str, passes: str):
    context = PassContext(opt_level=4, instruments=[VerifyInstrument()])
    result = parse_pipeline(passes)(parse(path.read_text(), source=path.name), context)
    options = Options(match_filename=str(path), check_prefixes=[prefix])
    parser = Parser.from_opts(options)
    assert Matcher(options, FInput("result", str(result)), parser).run() == 0


def test_every_file_runs_something():
    assert FILES
    assert all(runs_of(path) for path in FILES)


def test_a_wrong_expectation_fails(tmp_path):
    path = tmp_path / "wrong.ir"
    path.write_text("// RUN: print_ir\n// CHECK: tanh(%x)\n"
                    "def @main(%x: Tensor[(2,), float32]) { exp(%x) }\n")
    with pytest.raises(AssertionError):
        test_file(path, "CHECK", "eliminate_identity")
