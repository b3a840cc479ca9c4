"""``import weft`` is light: no compiler, no frontend, no device."""

import subprocess
import sys

import pytest

HEAVY = ("llvmlite", "onnx", "numba", "torch", "lark", "rich", "click")


def modules_after(statement):
    code = f"{statement}\nimport sys\nprint(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import weft", "import weft; weft.config(debug=1)",
                                       "import weft; dir(weft)"])
def test_nothing_heavy_is_imported(statement):
    assert not modules_after(statement) & set(HEAVY)


def test_the_functional_ir_is_light_too():
    assert not modules_after("import weft.ir, weft.op") & set(HEAVY)


def test_what_linux_alone_has_is_not_needed_to_import_and_compile():
    """Elsewhere models are compiled and exported; running them is refused with a reason."""
    code = """
import os
import llvmlite.binding, numpy
for name in ("register_at_fork", "sched_getaffinity", "fork", "memfd_create"):
    delattr(os, name)
import weft
from weft.runtime.devices.cpu import host
host.system = lambda: "darwin"
model = weft.compile(weft.parse("def @main(%x: Tensor[(2,), float32]) { exp(%x) }"))
from weft.cli import info
assert int(info._machine()["cpus"]) > 0
try:
    model(numpy.ones(2, "float32"))
except weft.WeftError as error:
    print(error.expected, error.got)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "linux darwin\n", done.stderr


def test_import_takes_under_150_ms():
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import weft"],
                          capture_output=True, text=True, check=True)
    line = next(x for x in done.stderr.splitlines() if x.endswith("| weft"))
    microseconds = int(line.split("|")[1])
    assert microseconds < 150_000


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("name", ["onnx_backend", pytest.param(
    "torch_backend", marks=pytest.mark.torch)])
@pytest.mark.parametrize("first", ["import weft", "import weft.{name}", "from weft import {name}",
                                   "import weft; weft.{name}", "import weft.{name} as backend"])
def test_what_documents_name_as_a_module_is_one(first, name):
    """The name is the same thing, whoever has imported it in which way before."""
    code = f"""
{first.format(name=name)}
import importlib, sys, weft
assert weft.{name} is sys.modules['weft.{name}'] is importlib.import_module('weft.{name}')
assert '{name}' in dir(weft)
print(callable(weft.{name} if '{name}' == 'torch_backend' else weft.{name}.prepare))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "True\n", done.stderr


def test_public_names_exist_and_unknown_ones_are_refused():
    import weft

    assert {"compile", "load", "parse", "config", "WeftError"} <= set(dir(weft))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = weft.nonsense
