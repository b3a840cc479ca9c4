"""Plug-in packages on the path, with the metadata that an installer writes."""

import os
import subprocess
import sys
import textwrap
import zipfile

import pytest

PLUGIN = """
from weft import define_op, te
from weft.ir.typing.relations import same_type_as


def register():
    @define_op("acme.twice", relation=same_type_as(0))
    def twice(x, attrs):
        '''Each element doubled.'''
        return te.compute(x.shape, lambda *i: x[i] + x[i])
"""
USE = """
import numpy as np, sys, weft
assert "acme_weft" not in sys.modules, "loaded before it is used"
module = weft.compile(weft.parse("def @main(%x: Tensor[(3,), float32]) { acme.twice(%x) }"))
print(module(np.ones(3, np.float32)))
"""


def install(folder, package, entries, source):
    """What ``pip install`` leaves behind: the module, METADATA and entry_points.txt."""
    (folder / f"{package}.py").write_text(source)
    info = folder / f"{package}-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text("[weft.plugins]\n" + "\n".join(entries) + "\n")


@pytest.fixture
def run(tmp_path):
    def call(*arguments, **environment):
        settings = {**os.environ, "PYTHONPATH": str(tmp_path), **environment,
                    "WEFT_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run([sys.executable, *arguments], env=settings, text=True, check=False,
                              capture_output=True, cwd=tmp_path)
    return call


def test_a_plugin_is_loaded_when_a_program_is_parsed(tmp_path, run):
    install(tmp_path, "acme_weft", ["acme = acme_weft:register"], PLUGIN)
    done = run("-c", USE)
    assert done.stdout == "[2. 2. 2.]\n", done.stderr
    assert not done.stderr
    refused = run("-c", USE, WEFT_NO_PLUGINS="1")
    assert "unknown operator or constructor 'acme.twice'" in refused.stderr


def test_a_broken_plugin_is_reported_and_the_others_work(tmp_path, run):
    install(tmp_path, "acme_weft", ["acme = acme_weft:register"], PLUGIN)
    install(tmp_path, "broken_weft", ["broken = broken_weft", "gone = no_such_module"],
            "raise RuntimeError('not today')\n")
    done = run("-c", USE)
    assert done.stdout == "[2. 2. 2.]\n"
    assert done.stderr == textwrap.dedent("""\
        weft: plug-in broken (broken_weft 1.5): broken_weft: could not be loaded: \
RuntimeError: not today
        weft: plug-in gone (broken_weft 1.5): no_such_module: could not be loaded: \
ModuleNotFoundError: No module named 'no_such_module'
        """)
    table = run("-m", "weft", "doctor").stdout
    assert "acme_weft:register" in table
    assert "RuntimeError: not today" in table


PASSES = """
import weft
from dataclasses import dataclass
from typing import ClassVar
from weft import ir, op
from weft.ir.rewrite.pattern import any_
from weft.ir.visitor import rewrite_post_order


@weft.register_pass(phase="optimized")
@dataclass(frozen=True)
class SinToExp(ir.FunctionPass):
    name: ClassVar[str] = "sin_to_exp"

    def run(self, fn, ctx):
        return rewrite_post_order(fn, lambda node: op.exp(*node.args)
                                  if isinstance(node, ir.Call) and node.op.name == "sin" else node)


@weft.rule(op.exp(op.negative(any_("x"))), register=True)
def exp_is_even(x):
    '''Wrong on purpose: shows that the rule applies.'''
    return op.exp(x)
"""
USE_PASSES = """
import numpy as np, weft
for text in ("sin(%x)", "exp(negative(%x))"):
    module = weft.compile(weft.parse(f"def @main(%x: Tensor[(1,), float32]) {{ {text} }}"))
    print(round(float(module(np.ones(1, np.float32))[0]), 3), end=" ")
"""


def test_passes_and_rules_of_a_plugin_join_every_compilation(tmp_path, run):
    """Also of a model that was compiled and cached before the package was installed."""
    assert run("-c", USE_PASSES).stdout == "0.841 0.368 "
    install(tmp_path, "acme_passes", ["acme = acme_passes"], PASSES)
    done = run("-c", USE_PASSES)
    assert done.stdout == "2.718 2.718 ", done.stderr
    assert not done.stderr
    listed = run("-m", "weft", "passes").stdout
    assert "sin_to_exp" in listed
    assert "exp_is_even" in listed
    (tmp_path / "net.ir").write_text("def @main(%x: Tensor[(1,), float32]) { exp(negative(%x)) }")
    assert "negative" not in run("-m", "weft", "opt", "net.ir", "-p", "simplify_expr").stdout
    assert run("-c", USE_PASSES, WEFT_NO_PLUGINS="1").stdout == "0.841 0.368 "


VERSIONS = """
import sys
from importlib.metadata import distributions
from weft.support.plugins import LIBRARIES, library_version

for name in (*LIBRARIES, "Old_style", "no.such-package"):
    found = {d.version for d in distributions(name=name)} or {"absent"}
    assert library_version(name) in found, (name, library_version(name), found)
print(library_version("old-style"))
"""


def test_versions_are_those_of_importlib_metadata(tmp_path, run):
    """From names of folders where these tell, and without the parser of e-mails."""
    old = tmp_path / "old_style.egg-info"
    old.mkdir()
    (old / "PKG-INFO").write_text("Metadata-Version: 1.0\nName: old-style\nVersion: 0.7\n")
    done = run("-c", VERSIONS)
    assert done.stdout.split()[0] == "0.7", done.stderr


def test_versions_in_archives_are_found(tmp_path, run):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("packed-2.0.dist-info/METADATA",
                         "Metadata-Version: 2.1\nName: packed\nVersion: 2.0\n")
    done = run("-c", "import sys; sys.path.append('packed.zip')\n"
               "from weft.support.plugins import library_version; print(library_version('packed'))")
    assert done.stdout == "2.0\n", done.stderr
