"""Writers of other formats: all of them are found, whatever was imported first."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.export.writers import TypedCall, Writers, flattened
from weft.support.errors import RegistryError


@pytest.mark.parametrize(("module", "registry"), [
    ("weft.export.onnx.ops.image", "weft.export.onnx.registry"),
    ("weft.export.stablehlo.ops.shape", "weft.export.stablehlo.call"),
])
def test_a_module_that_was_imported_alone_does_not_hide_the_others(module, registry):
    program = f"import {module}\nfrom {registry} import writer_of\nassert writer_of('add')"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_operator_has_one_writer():
    writers: Writers[TypedCall] = Writers("a format", "weft.export.onnx.ops")
    writers.writes("add")(lambda _: None)
    with pytest.raises(RegistryError, match="a format writer of 'add' is registered twice"):
        writers.writes("subtract", "add")(lambda _: None)


def test_names_of_nested_tuples_are_in_order():
    assert flattened(["a", ["b", ["c"]], []]) == ["a", "b", "c"]
