"""Converters are imported with the first model that has their operator."""

import json
import subprocess
import sys

from weft.frontend.onnx.converters import MODULES

REGISTERED = """
import json, pkgutil, sys
from importlib import import_module
from weft.frontend.common.registry import ConverterTable

found = {}
register = ConverterTable.register

def record(table, op, converter, since=1):
    frame = sys._getframe(1)
    while frame.f_code.co_name != "<module>":
        frame = frame.f_back
    module = frame.f_globals["__name__"].removeprefix("weft.frontend.onnx.")
    found.setdefault(module, set()).add(op)
    register(table, op, converter, since)

ConverterTable.register = record
for package in ("contrib", "ml", "ops"):
    for module in pkgutil.iter_modules(import_module(f"weft.frontend.onnx.{package}").__path__):
        import_module(f"weft.frontend.onnx.{package}.{module.name}")
print(json.dumps({module: " ".join(sorted(names)) for module, names in found.items()}))
"""
LOADED = """
import sys
from weft.frontend.onnx.converters import onnx_converter
from weft.frontend.onnx.registry import CONVERTERS

def loaded():
    return sorted(name.rpartition(".")[2] for name in sys.modules
                  if name.startswith(("weft.frontend.onnx.ops.", "weft.frontend.onnx.ml.")))

print(loaded(), "Binarizer" in " ".join(CONVERTERS.names()))
assert CONVERTERS.find("ai.onnx.ml::Binarizer") is not None
print(loaded())
onnx_converter("Det", since=100)(lambda node, x: x)  # weft's is imported before
print(loaded(), CONVERTERS.of_users(), CONVERTERS.find("Det").convert.__module__)
"""


def output_of(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=False, timeout=60)
    assert not done.returncode, done.stderr
    return done.stdout


def test_the_table_names_the_module_that_registers_each_converter():
    assert json.loads(output_of(REGISTERED)) == MODULES


def test_a_module_is_imported_when_its_operator_is_asked_for():
    assert output_of(LOADED) == (
        "[] True\n['features', 'naming']\n"
        "['determinant', 'features', 'naming'] ('Det',) __main__\n")
