"""Filling the cache ahead of use, and stores of kernels that other processes read."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.unit.cli.commands import run
from weft.codegen.llvm.backend import CpuBackend
from weft.compiler.build import kernel
from weft.compiler.build.cached_objects import support_objects
from weft.compiler.build.common_nets import (
    COMMON_NETS,
    mlp,
    mobilenet_v2,
    resnet,
    transformer,
    vgg16,
)
from weft.compiler.build.store import build_ahead, write_store
from weft.ir import TensorType, TupleType, float32
from weft.support import fingerprint
from weft.support.cache import Store, open_cache
from weft.support.errors import OptionError
from weft.target import CpuTarget, Target

TEXT = "def @main(%x: Tensor[(3, 8), float32]) { nn.softmax(exp(%x)) }"


@pytest.fixture
def builds(monkeypatch):
    """The names of the kernels that are built."""
    names = []
    build = kernel.build_kernel
    monkeypatch.setattr(kernel, "build_kernel",
                        lambda name, *rest: names.append(name) or build(name, *rest))
    return names


@pytest.fixture
def store(own_cache, tmp_path):
    """A store of the kernels of ``TEXT``, and an empty cache."""
    keys = build_ahead(weft.parse(TEXT), None)
    write_store(open_cache(), keys, tmp_path / "store")
    open_cache().clear()
    return tmp_path / "store"


def answer(store):
    with weft.config(store=[store], verify=0):
        return weft.compile(weft.parse(TEXT))(np.ones((3, 8), np.float32))


def content(folder):
    return {path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


def test_kernels_of_a_store_are_not_built_again(store, builds):
    np.testing.assert_allclose(answer(store), np.full((3, 8), 0.125), rtol=1e-6)
    assert not builds


def test_two_stores_have_equal_bytes(store, own_cache, tmp_path):
    keys = build_ahead(weft.parse(TEXT), None)
    count, size = write_store(open_cache(), keys, tmp_path / "again")
    assert content(tmp_path / "again") == content(store)
    assert (count, size) == (len(content(store)), Store(store).size()[1] - 64 * count)
    modes = {oct(path.stat().st_mode & 0o777) for path in store.rglob("*") if path.is_file()}
    assert modes == {"0o644"}  # an image is read by other users


def test_a_store_of_another_weft_or_llvm_is_not_read(store, builds, monkeypatch):
    monkeypatch.setattr(fingerprint, "compiler_digest", lambda: "another")
    answer(store)
    assert len(builds) == 2


def test_a_folder_that_cannot_be_written_is_an_error(store, own_cache, tmp_path):
    keys = build_ahead(weft.parse(TEXT), None)
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="the store cannot be written"):
        write_store(open_cache(), keys, tmp_path / "file" / "store")


def test_a_store_for_another_cpu_is_not_read(store, builds):
    with weft.config(store=[store]):
        weft.compile(weft.parse(TEXT), target="llvm -mcpu=haswell")
    assert len(builds) == 2


def test_a_store_for_a_level_serves_other_machines(own_cache, tmp_path, builds, monkeypatch):
    level = Target.of("llvm -mcpu=x86-64-v3")
    write_store(open_cache(), build_ahead(weft.parse(TEXT), level), tmp_path / "store")
    open_cache().clear()
    builds.clear()
    other = Target.of("llvm -mcpu=haswell")
    monkeypatch.setattr(CpuTarget, "host", staticmethod(lambda: other))
    support = []
    monkeypatch.setattr(CpuBackend, "support_objects", lambda *_: support.append(1) or ())
    support_objects.cache_clear()
    with weft.config(store=[tmp_path / "store"]):
        build_ahead(weft.parse(TEXT), level)
    assert not builds
    assert not support


def test_a_truncated_store_costs_a_build_and_no_more(store, builds):
    for path in store.rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-3])
    np.testing.assert_allclose(answer(store), np.full((3, 8), 0.125), rtol=1e-6)
    assert len(builds) == 2


FILL = ("import sys, weft; from pathlib import Path; from weft.support.cache import open_cache;"
        "from weft.compiler.build.store import build_ahead, write_store;"
        f"write_store(open_cache(), build_ahead(weft.parse({TEXT!r}), None), Path(sys.argv[1]))")


def test_two_processes_fill_one_store(store, tmp_path):
    shared = tmp_path / "shared"
    fillers = [subprocess.Popen([sys.executable, "-c", FILL, str(shared)],
                                env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "filled")})
               for _ in range(2)]
    assert [filler.wait(timeout=60) for filler in fillers] == [0, 0]
    assert content(store).items() <= content(shared).items()  # and the name of the CPU


def test_the_command_fills_the_cache_and_a_store(own_cache, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.ir").write_text(TEXT)
    code, out, _ = run(["warm", "net.ir", "--into", "store", "--json"], capsys)
    facts = json.loads(out)
    assert code == 0
    assert facts["new"] >= facts["entries"] > 1
    assert Store(tmp_path / "store").size()[0] == facts["entries"]
    code, out, _ = run(["warm", "net.ir"], capsys)
    assert "0 of them new" in out
    monkeypatch.setenv("WEFT_STORE", "store,nowhere")
    facts = json.loads(run(["cache", "--json"], capsys)[1])
    assert "entries" in facts["store store"]
    assert "is not a folder" in facts["store nowhere"]
    assert "encoder-768x128" in run(["warm", "--list"], capsys)[1]


@pytest.mark.parametrize(("arguments", "message"), [
    (["warm", "no such net"], "no such net"),
    (["warm", "net.ir", "--into", "net.ir"], "is a file"),
], ids=["model", "folder"])
def test_a_wrong_command_says_what_is_wrong(own_cache, tmp_path, capsys, monkeypatch, arguments,
                                            message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.ir").write_text(TEXT)
    code, _, err = run(arguments, capsys)
    assert code in (1, 2)
    assert message in err


def test_no_cache_cannot_be_filled(monkeypatch, capsys):
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    code, _, err = run(["warm", "vgg16"], capsys)
    assert code == 2
    assert "no cache to fill" in err


@pytest.mark.parametrize(("make", "shapes"), [
    (lambda: resnet(bottleneck=True), [(1, 1000)] * 2), (mobilenet_v2, [(1, 1000)] * 2),
    (vgg16, [(1, 512, 7, 7)]), (lambda: mlp(32, 128), [(32, 10)]),
    (lambda: transformer(384, 16, is_decoder=True), [(1, 16, 50257)]),
    (lambda: transformer(384, 16, is_decoder=False), [(1, 16, 384)]),
], ids=["resnet", "mobilenet", "vgg", "mlp", "decoder", "encoder"])
def test_common_nets_have_the_shapes_of_their_families(make, shapes):
    found = make()["main"].body.checked_type
    types = list(found.fields) if isinstance(found, TupleType) else [found]
    assert types == [TensorType(shape, float32) for shape in shapes]
    assert len(COMMON_NETS) > 8
