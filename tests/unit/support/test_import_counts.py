"""What a start imports and builds, by number: times of a shared machine say little.

A bound is about a tenth above the number at the time of writing. When it is exceeded, something
imports more than it uses; raise it only for what every start needs.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

_SMALL = "weft.compile(weft.parse('def @main(%x: Tensor[(10,), float32]) { tanh(%x) }'))"
_COUNT = """
import dataclasses, sys
import numpy
decorate, counted = dataclasses.dataclass, []
def count(cls=None, /, **options):
    counted.append(cls)
    return decorate(cls, **options)
dataclasses.dataclass = count
before = set(sys.modules)
import weft
{statement}
after = set(sys.modules) - before
print(len([m for m in after if m.startswith("weft")]), len(counted))
print(*sorted(after))
"""


def counts(statement, **variables):
    """The number of weft's modules, of standard dataclasses, and the names of all new modules."""
    done = subprocess.run([sys.executable, "-c", _COUNT.format(statement=statement)], text=True,
                          capture_output=True, check=False, env={**os.environ, **variables})
    assert not done.returncode, done.stderr
    numbers, names = done.stdout.splitlines()
    return *map(int, numbers.split()), set(names.split())


def families(modules, *prefixes):
    return {m for m in modules if m.startswith(prefixes)}


def test_the_import_of_weft():
    own, built, modules = counts("")
    assert own <= 10
    assert built <= 2
    assert not families(modules, "weft.ir", "weft.runtime", "weft.compiler", "rich", "click")


def test_a_small_compilation(tmp_path):
    own, built, modules = counts(_SMALL, WEFT_CACHE_DIR=str(tmp_path))
    assert own <= 710
    assert built <= 25  # one for each combination of options, and those of weft.support.dataclass
    assert not families(
        modules, "numba", "onnx", "rich", "click", "weft.strategy.cuda", "weft.codegen.cuda",
        "weft.frontend.onnx.ops", "weft.op.vision", "weft.op.image", "weft.op.random",
        "weft.op.special", "weft.transform.autodiff.batching.vectorize")


def small_model(path, result):
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("x", result)]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], [result])], "g", ports[:1],
                              ports[1:])
    path.write_bytes(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())
    return path


def test_a_new_model_whose_kernels_are_cached(tmp_path):
    """It is made without schedules, loops, LLVM, and what few models need."""
    kept = {"WEFT_CACHE_DIR": str(tmp_path / "cache"), "WEFT_VERIFY": "0"}
    compiled = "weft.compile({!r})(numpy.ones(3, 'float32'))"
    counts(compiled.format(str(small_model(tmp_path / "one.onnx", "y"))), **kept)
    other = small_model(tmp_path / "other.onnx", "z")
    own, _, modules = counts(compiled.format(str(other)), **kept)
    assert own <= 400
    assert not families(
        modules, "difflib", "fractions", "html", "llvmlite", "logging", "ml_dtypes", "onnx",
        "sqlite3", "subprocess", "weft.op.random", "weft.strategy.cpu.families", "weft.te.lower",
        "weft.te.schedule", "weft.tir.transform.pipeline", "weft.ir.text.lexer", "weft.compiler.vm",
        "weft.compiler.program.devices.build", "weft.compiler.program.within_budget",
        "weft.transform.autodiff", "weft.frontend.onnx.ops.conv", "weft.frontend.onnx.contrib",
        "weft.transform.rules.identities", "weft.transform.placement.domains",
        "weft.op.nn.attention", "weft.op.nn.conv", "weft.tir.simplify")


def test_a_warm_start(tmp_path):
    path = small_model(tmp_path / "small.onnx", "y")
    # The times of a file that was just written are trusted.
    statement = ("import weft.support.file_content as s; s.RACY_NS = 0\n"
                 f"weft.compile({str(path)!r})(numpy.ones(3, 'float32'))")
    kept = {"WEFT_CACHE_DIR": str(tmp_path / "cache"), "WEFT_VERIFY": "0"}
    own, _, _ = counts(statement, **kept)
    assert own <= 750  # the front end too
    own, built, modules = counts(statement, **kept)
    assert own <= 110
    assert built <= 25
    assert not families(modules, "onnx", "llvmlite", "weft.ir", "weft.op", "weft.transform",
                        "weft.strategy", "weft.codegen")


def test_records_use_the_decorator_of_weft():
    """The standard one compiles all methods of a class at once."""
    own = {ROOT / "weft/support/dataclass.py", ROOT / "weft/support/dataclass_methods.py"}
    standard = re.compile(r"^from dataclasses import [^\n]*\bdataclass\b|@dataclasses\.dataclass",
                          re.MULTILINE)
    found = [path for path in (ROOT / "weft").rglob("*.py")
             if path not in own and standard.search(path.read_text(encoding="utf-8"))]
    assert not found, "import dataclass from weft.support.dataclass"
