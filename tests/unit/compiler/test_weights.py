"""Weights on their way from a file to the memory of a program and the cache."""

from __future__ import annotations

import errno
import gc
import itertools
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.compiler import compile_model, warm_start
from weft.compiler.cache import _Pages
from weft.compiler.program import build, packing
from weft.compiler.program.constants import OwnBlock, constant_layout
from weft.compiler.program.packing import byte_bounds
from weft.frontend.source import Source, open_source
from weft.ir import deferred
from weft.support import cache_entry, file_content
from weft.support.cache import DiskCache
from weft.support.file_content import FileContent

RNG = np.random.default_rng(0)


def saved(path: Path, *, external: bool = False) -> np.ndarray:
    """A model with two uses of one large weight, as it is and transposed; returns the weight."""
    weight = RNG.standard_normal((200, 200)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]),
             helper.make_node("Transpose", ["w"], ["t"]),
             helper.make_node("MatMul", ["a", "t"], ["b"]),
             helper.make_node("Gather", ["w", "i"], ["c"]),
             helper.make_node("Add", ["b", "c"], ["y"])]
    graph = helper.make_graph(
        nodes, "tied", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 200))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w"),
         numpy_helper.from_array(np.array([3, 0, 199]), "i")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path, save_as_external_data=external, location="w.bin")
    return weight


def expected(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x @ weight @ weight.T + weight[[3, 0, 199]]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> Path:
    """A cache of its own, in which files that have just changed are known."""
    monkeypatch.setattr(warm_start, "compiler_is_loaded", lambda: False)
    monkeypatch.setattr(warm_start, "is_extended", lambda: False)
    monkeypatch.setattr(file_content, "RACY_NS", 0)
    monkeypatch.setenv("WEFT_VERIFY", "0")  # verifying compiles again
    return own_cache


@pytest.mark.parametrize("external", [False, True])
def test_a_tied_weight_is_right_cold_and_warm(tmp_path: Path, cache: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    weight = saved(path, external=external)
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    first, second = weft.compile(path), weft.compile(path)
    assert type(second.recompiler).__name__ == "_Again"
    for mod in (first, second):
        np.testing.assert_allclose(mod(x), expected(x, weight), rtol=1e-4, atol=1e-3)
    assert not list(cache.glob("??/.tmp-*"))


def test_changed_external_data_are_read(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "m.onnx"
    weight = saved(path, external=True)
    weft.compile(path)
    weft.compile(path)
    data = tmp_path / "w.bin"
    values = np.fromfile(data, np.float32) * 2
    values.tofile(data)
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    np.testing.assert_allclose(weft.compile(path)(x), expected(x, 2 * weight), rtol=1e-4, atol=1e-2)
    data.unlink()
    with pytest.raises(weft.WeftError, match="missing"):
        weft.compile(path)


def test_the_stages_read_the_file_again(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path)
    mod = weft.compile(path)
    assert "matmul" in mod.as_text("import") or "dense" in mod.as_text("import")
    other = weft.compile(path, opt_level=0)
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    np.testing.assert_allclose(mod(x), other(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("external", [False, True])
def test_a_new_model_is_compiled_while_it_is_hashed(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, external: bool) -> None:
    """The entry is found later, and other weights of the same size are another model."""
    path, optimised = tmp_path / "m.onnx", threading.Event()
    saved(path, external=external)
    for name in ("digest_of", "file_digest"):
        real = getattr(file_content, name)
        monkeypatch.setattr(file_content, name,
                            lambda data, real=real: optimised.wait(20) and real(data))
    pipeline = build.run_pipeline
    monkeypatch.setattr(build, "run_pipeline",
                        lambda *a, **k: (pipeline(*a, **k), optimised.set())[0])
    weft.compile(path)
    assert optimised.is_set()
    assert type(weft.compile(path).recompiler).__name__ == "_Again"
    saved(path, external=external)  # other weights, of the same size
    optimised.set()
    assert type(weft.compile(path).recompiler).__name__ != "_Again"
    assert type(weft.compile(path).recompiler).__name__ == "_Again"


def test_a_model_that_is_not_compiled_leaves_nothing(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    saved(path)

    def fail(*_: object, **__: object) -> None:
        raise weft.WeftError("stopped")

    monkeypatch.setattr("weft.compiler.program.model_code.build_placed", fail)
    with pytest.raises(weft.WeftError, match="stopped"):
        weft.compile(path)
    assert not list(cache.glob("??/.tmp-*"))


def test_the_content_is_dropped_after_the_compilation(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[FileContent | None] = []

    def note(*arguments: Any) -> Source:
        source = open_source(*arguments)
        seen.append(source.file)
        return source

    monkeypatch.setattr(compile_model, "open_source", note)
    path = tmp_path / "m.onnx"
    saved(path)
    mod = weft.compile(path)
    gc.collect()
    assert [file is not None and file._reader for file in seen] == [None]
    assert mod.inputs[0].name == "x"


@pytest.mark.parametrize("is_cached", [True, False])
def test_the_memory_of_a_module_is_freed_with_it(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, is_cached: bool) -> None:
    """Without a collection of cyclic garbage, which would come late."""
    monkeypatch.setenv("WEFT_NO_CACHE", str(int(not is_cached)))
    blocks: list[weakref.ref[Any]] = []
    begin = OwnBlock.begin

    def noted(self: OwnBlock, constants: Sequence[np.ndarray]) -> None:
        begin(self, constants)
        assert self._packing is not None
        blocks.append(weakref.ref(self._packing))

    monkeypatch.setattr(OwnBlock, "begin", noted)
    saved(tmp_path / "m.onnx")
    gc.disable()
    try:
        weft.compile(tmp_path / "m.onnx")
        assert blocks
        assert all(block() is None for block in blocks)
    finally:
        gc.enable()


def test_weights_that_folding_replaces_are_forgotten_at_once(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that follows a weight is folded into a copy of it."""
    weight = RNG.standard_normal((200, 200)).astype(np.float32)
    scale = np.linspace(0.5, 2, 200, dtype=np.float32)
    graph = onnx.parser.parse_graph(
        "scaled (float[3, 200] x) => (float[3, 200] y) { a = Mul(x, s) y = MatMul(a, w) }")
    graph.initializer.extend([numpy_helper.from_array(scale, "s"),
                              numpy_helper.from_array(weight, "w")])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              path)
    kept: list[list[int]] = []
    keep_only = _Pages.keep_only

    def note(self: _Pages, arrays: Sequence[np.ndarray]) -> None:
        kept.append([self.start <= byte_bounds(array)[0] < self.end for array in arrays
                     if array.size == weight.size])
        keep_only(self, arrays)

    monkeypatch.setattr(_Pages, "keep_only", note)
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    np.testing.assert_allclose(weft.compile(path)(x), (x * scale) @ weight, rtol=1e-4, atol=1e-3)
    assert [False] in kept[:-1]  # before the packing, by one pass


def arrays() -> list[np.ndarray]:
    base = RNG.standard_normal((300, 500)).astype(np.float32)
    return [base, base.T, base[::2, 3:], np.arange(7), base[:16, :32].reshape(2, 8, 32)[:, ::-1],
            np.float32(3), np.zeros((0, 4), np.int8), base.reshape(10, 30, 500).transpose(2, 0, 1),
            RNG.standard_normal((4100, 2100)).astype(np.float32).T]


class Overwritten:
    """Memory that is overwritten when it is forgotten."""

    def __init__(self) -> None:
        self.kept: set[int] = set()

    def keep_only(self, arrays: Sequence[np.ndarray]) -> None:
        self.kept = {*map(id, arrays)}

    def forget(self, array: np.ndarray) -> None:
        array[...] = -1


@pytest.mark.parametrize("fails_at", [None, 0, 5])
@pytest.mark.parametrize("mapped", [False, True])
def test_views_are_packed_in_their_own_order(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, fails_at: int | None
        ) -> None:
    monkeypatch.setattr(packing, "_MAPPED_BYTES", 0 if mapped else 1 << 40)
    write, written = cache_entry._write_all, itertools.count()

    def fill(handle: int, data: memoryview, at: int) -> None:
        if next(written) == fails_at:
            raise OSError(errno.ENOSPC, "no space left on device")
        write(handle, data, at)

    monkeypatch.setattr(cache_entry, "_write_all", fill)
    cache = DiskCache(tmp_path)
    given = [np.asarray(a) for a in arrays()]
    memory = Overwritten()
    block = OwnBlock(lambda size: cache.writer("ab" * 32, size), memory)
    expected = [a.copy() for a in given]
    block.begin(given)
    placed = block.place(given)
    offsets, total = constant_layout(given)
    assert (placed.offsets, placed.nbytes) == (tuple(offsets), total)
    for array, offset in zip(expected, offsets, strict=True):
        copy = placed.block[offset : offset + array.nbytes].view(array.dtype)
        assert np.array_equal(copy.reshape(array.shape), array)
    assert memory.kept == {*map(id, given)}
    assert all((array == -1).all() for array in given)
    found = block.packing_of(placed.block)
    assert found is not None
    assert found.entry is not None
    assert found.is_mapped == (mapped and fails_at is None)
    found.finish_writing()
    assert cache.keep(found.entry) == (fails_at is None or (mapped and fails_at == 0))
    kept = cache.get("ab" * 32)
    if kept is not None:
        assert bytes(kept) == placed.block.tobytes()


def test_other_constants_come_from_the_copy_of_forgotten_ones() -> None:
    first = [np.full(1000, n, np.float64) for n in range(3)]

    block = OwnBlock(None, Overwritten())
    block.place(first)
    assert first[2][0] == -1
    placed = block.place([first[2], np.ones(3), first[0]])
    values = [placed.block[at : at + 8].view(np.float64)[0] for at in placed.offsets]
    assert values == [2, 1, 0]


def test_bounds_are_those_of_all_elements() -> None:
    base = np.zeros((6, 7), np.int32)
    start = base.__array_interface__["data"][0]
    assert byte_bounds(base) == (start, start + base.nbytes)
    assert byte_bounds(base[::-1, ::-1]) == (start, start + base.nbytes)
    assert byte_bounds(base[1:3, 2]) == (start + 4 * 9, start + 4 * 17)


def refuse(file: int, nbytes: int) -> None:
    raise OSError(errno.ENOSPC, f"no space for {nbytes} bytes of {file}")


@pytest.mark.parametrize(("mapped", "reserved"), [(False, True), (True, True), (True, False)])
def test_a_full_disk_costs_the_entry_alone(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool, reserved: bool
        ) -> None:
    monkeypatch.setattr(packing, "_MAPPED_BYTES", 0 if mapped else 1 << 40)
    if not reserved:
        monkeypatch.setattr(cache_entry, "reserve_space", refuse)
    write, left = cache_entry._write_all, [100_000]

    def fill(handle: int, data: memoryview, at: int) -> None:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "no space left on device")
        write(handle, data, at)

    monkeypatch.setattr(cache_entry, "_write_all", fill)
    path = tmp_path / "m.onnx"
    weight = saved(path)
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    np.testing.assert_allclose(weft.compile(path)(x), expected(x, weight), rtol=1e-4, atol=1e-3)
    assert not list(cache.glob("??/.tmp-*"))


def test_a_file_that_changes_meanwhile_is_compiled_as_it_was(
        tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    weight = saved(path)
    run_pipeline = build.run_pipeline

    def truncate(*args: Any, **kwargs: Any) -> Any:
        path.write_bytes(b"")
        return run_pipeline(*args, **kwargs)

    monkeypatch.setattr(build, "run_pipeline", truncate)
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    np.testing.assert_allclose(weft.compile(path)(x), expected(x, weight), rtol=1e-4, atol=1e-3)
    with pytest.raises(weft.WeftError, match="empty"):
        weft.compile(path)


LARGE = """
import sys
import weft
from weft.compiler import api, cache
cache._SLOW_BYTES = 0  # finish the entry in a thread
api._LARGE_BYTES = 0    # and start a process for kernels
from weft.compiler.build import worker_process
started = []
start = worker_process._started
worker_process._started = lambda: started.append(start()) or started[-1]
mod = weft.compile(sys.argv[1], build_jobs=2)
assert not worker_process._spare
assert [process.poll() is not None for process in started] == [True], started
"""


@pytest.mark.slow
def test_large_entries_are_whole_when_the_process_ends(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "m.onnx"
    weight = saved(path)
    command = [sys.executable, "-c", LARGE, str(path)]
    subprocess.run(command, check=True, timeout=120)
    assert not list(cache.glob("??/.tmp-*"))
    x = RNG.standard_normal((3, 200)).astype(np.float32)
    mod = weft.compile(path)
    np.testing.assert_allclose(mod(x), expected(x, weight), rtol=1e-4, atol=1e-3)


LATE = """
import os, sys, threading
import weft
from weft.compiler import cache
cache._SLOW_BYTES = 0
niceness = []
finish = cache._Entry._finish
def note(*arguments):
    niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    finish(*arguments)
cache._Entry._finish = note
weft.compile(sys.argv[1])
[thread.join() for thread in threading.enumerate() if thread.name == "weft cache"]
assert niceness == [os.getpriority(os.PRIO_PROCESS, 0) + 10], niceness
"""


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux")
def test_the_thread_that_writes_an_entry_gives_way(tmp_path: Path, own_cache: Path) -> None:
    path = tmp_path / "m.onnx"
    saved(path)
    subprocess.run([sys.executable, "-c", LATE, str(path)], check=True, timeout=120,
                   env={**os.environ, "WEFT_VERIFY": "0"})
    assert not list(own_cache.glob("??/.tmp-*"))


def test_scaled_and_padded_weights_are_first_written_where_they_are_packed(
        tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bits are those of weights that are computed at once; a failed write changes nothing."""
    head, width = 384, 530  # the rows of the last weight are padded
    monkeypatch.setenv("WEFT_VERIFY", "0")
    graph = onnx.parser.parse_graph(
        "net (float[64, 200] x) => (float[64, 530] y) "
        "{ a = MatMul(x, v) b = Mul(a, s) c = Tanh(b) y = MatMul(c, w) }")
    graph.initializer.extend([
        numpy_helper.from_array(RNG.standard_normal((200, head)).astype(np.float32), "v"),
        numpy_helper.from_array(RNG.standard_normal(head).astype(np.float32), "s"),
        numpy_helper.from_array(RNG.standard_normal((head, width)).astype(np.float32), "w")])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              path)

    def block(least: int) -> bytes:
        monkeypatch.setattr(deferred, "MIN_BYTES", least)
        return weft.compile(path).launcher.constants.tobytes()

    at_once = block(1 << 40)
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    monkeypatch.setattr(deferred.Deferred, "__array__", lambda *_: pytest.fail("computed early"))
    written: list[type] = []
    for kind in (deferred.Product, deferred.Joined):
        write = kind.write
        monkeypatch.setattr(kind, "write", lambda one, to, write=write: (
            written.append(type(one)), write(one, to))[1])
    assert block(1) == at_once
    assert {*written} == {deferred.Product, deferred.Joined}
