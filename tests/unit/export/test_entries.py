"""Several entry points in one file: over one set of weights, with one state."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import weft
from weft import op
from weft.ir import Constant, Function, IRModule, infer_type, var
from weft.runtime import artifact
from weft.support.errors import ArtifactError, OptionError

WEIGHTS = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((2, 256)).astype(np.float32)
# A counter that one program moves on, and another one reads.
COUNT = """def @main(%x: Tensor[(4,), float32], %total: Tensor[(4,), float32]) {
  let %next = add(%x, %total); (sum(%next), %next) }"""
READ = """def @main(%y: Tensor[(4,), float32], %total: Tensor[(4,), float32]) {
  (multiply(%y, %total), %total) }"""


def over_the_weights(activation: str) -> weft.Executable:
    x = var("x", (2, 256), "float32")
    body = getattr(op, activation)(op.nn.dense(x, Constant(WEIGHTS)))
    return weft.compile(infer_type(IRModule({"main": Function((x,), body)})))


def test_weights_are_in_the_file_once(tmp_path: Path) -> None:
    modules = {"tanh": over_the_weights("tanh"), "exp": over_the_weights("exp")}
    weft.export_entries(modules, tmp_path / "both.weft", portable=False)
    loaded = artifact.load(tmp_path / "both.weft")
    assert list(loaded) == ["exp", "tanh"]
    for name, module in modules.items():
        np.testing.assert_array_equal(loaded[name](X), module(X))
    with zipfile.ZipFile(tmp_path / "both.weft") as archive:
        assert archive.getinfo("constants.bin").file_size < 1.5 * WEIGHTS.nbytes
    alone = artifact.load(tmp_path / "both.weft", entry="exp")
    np.testing.assert_array_equal(alone(X), modules["exp"](X))


def test_a_program_reads_the_state_that_another_changes(tmp_path: Path) -> None:
    count = weft.compile(weft.parse(COUNT), state={"output1": "total"})
    read = weft.compile(weft.parse(READ), state={"output1": "total"})
    count(np.ones(4, np.float32))  # what a module has in its state stays there
    weft.export_entries({"count": count, "read": read}, tmp_path / "two.weft")
    np.testing.assert_array_equal(count.state["total"], np.ones(4))
    loaded = artifact.load(tmp_path / "two.weft")
    two, ones = np.full(4, 2, np.float32), np.ones(4, np.float32)
    assert loaded["count"](two) == 8
    np.testing.assert_array_equal(loaded["read"](ones), two)
    assert loaded["count"](two) == 16
    np.testing.assert_array_equal(loaded["read"](ones), 2 * two)


@pytest.mark.parametrize("name", ["", "a/b", ".", "../x", 3])
def test_names_that_no_file_could_have(name: object, tmp_path: Path) -> None:
    module = weft.compile(weft.parse("def @main(%x: Tensor[(2,), float32]) { exp(%x) }"))
    with pytest.raises(OptionError, match="a name that no file could have"):
        weft.export_entries({name: module}, tmp_path / "m.weft")
    with pytest.raises(OptionError, match="no modules are given"):
        weft.export_entries({}, tmp_path / "m.weft")


def test_a_loaded_module_is_not_exported_again(tmp_path: Path) -> None:
    module = weft.compile(weft.parse("def @main(%x: Tensor[(2,), float32]) { exp(%x) }"))
    module.export(tmp_path / "m.weft", check=False)
    with pytest.raises(ArtifactError, match="cannot be exported again"):
        weft.export_entries({"a": weft.load(tmp_path / "m.weft")}, tmp_path / "n.weft")
