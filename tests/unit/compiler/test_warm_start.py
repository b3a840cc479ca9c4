"""A file that was compiled before starts from the cache; anything that may differ compiles."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.compiler import warm_start
from weft.compiler.api import compile_recorded
from weft.frontend import source
from weft.ir.rewrite import rules
from weft.support import file_content

TEXT = "def @main(%x: Tensor[(3,), float32]) {{ multiply(%x, {}f) }}"
X = np.array([1, 2, 3], np.float32)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model that changed long ago, and a cache of its own."""
    monkeypatch.setattr(warm_start, "compiler_is_loaded", lambda: False)
    monkeypatch.setattr(warm_start, "is_extended", lambda: False)
    monkeypatch.setattr(file_content, "RACY_NS", 0)
    monkeypatch.setenv("WEFT_VERIFY", "1")
    path = tmp_path / "m.ir"
    path.write_text(TEXT.format(2))
    with weft.config(cache_dir=tmp_path / "cache"):
        yield path


def is_warm(path: Path, **options: object) -> bool:
    """Whether the executable came from the cache without a compilation."""
    made = weft.compile(path, **options)
    return type(made.recompiler).__name__ == "_Again"


def test_the_second_time_it_starts_from_the_cache(model: Path) -> None:
    assert [is_warm(model) for _ in range(3)] == [False, True, True]
    assert weft.compile(model)(X).tolist() == [2, 4, 6]


def test_a_changed_file_is_compiled(model: Path) -> None:
    weft.compile(model)
    before = model.stat()
    model.write_text(TEXT.format(3))  # of the same size, and with the old time below
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert weft.compile(model)(X).tolist() == [3, 6, 9]
    assert is_warm(model)


def test_another_file_in_its_place_is_compiled(model: Path) -> None:
    weft.compile(model)
    other = model.with_suffix(".new")
    other.write_text(TEXT.format(5))
    other.replace(model)
    assert weft.compile(model)(X).tolist() == [5, 10, 15]


def test_files_that_changed_just_now_are_read(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_content, "RACY_NS", 10**12)
    weft.compile(model)
    assert not is_warm(model)


@pytest.mark.parametrize("other", [{"opt_level": 1}, {"target": "llvm -mcpu=haswell"},
                                   {"inputs": {"x": (3,)}}, {"winograd": False}])
def test_other_options_are_compiled(model: Path, other: dict[str, object]) -> None:
    weft.compile(model)
    assert not is_warm(model, **other)


def test_another_state_of_the_compiler_is_another_key(
        model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weft.compile(model)
    monkeypatch.setattr(warm_start, "_compiler", lambda: "another version")
    assert not is_warm(model)


def test_settings_that_show_stages_compile(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weft.compile(model)
    with weft.config(debug=3):
        assert not is_warm(model)
    with weft.config(hash_models=True):
        assert not is_warm(model)


def test_passes_of_the_user_compile(model: Path) -> None:
    weft.compile(model)
    assert not is_warm(model, tir_passes=[lambda func: func])


def test_damaged_records_and_entries_compile(model: Path, tmp_path: Path) -> None:
    weft.compile(model)
    for entry in (tmp_path / "cache").glob("??/*"):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 0xFF
        entry.write_bytes(data)
    assert weft.compile(model)(X).tolist() == [2, 4, 6]
    for entry in (tmp_path / "cache").glob("??/*"):
        entry.unlink()
    assert weft.compile(model)(X).tolist() == [2, 4, 6]


def test_threads_are_kept(model: Path) -> None:
    weft.compile(model)
    made = weft.compile(model, threads=2)
    assert type(made.recompiler).__name__ == "_Again"
    assert (made.threads, weft.compile(model).threads) == (2, None)


def test_what_needs_the_compiler_imports_it(model: Path, tmp_path: Path) -> None:
    first, second = weft.compile(model), weft.compile(model)
    assert type(first) is type(second) is weft.Executable
    assert second.as_text("lowered") == first.as_text("lowered")
    first.export(tmp_path / "a.weft")
    second.export(tmp_path / "b.weft")
    assert (tmp_path / "a.weft").read_bytes() == (tmp_path / "b.weft").read_bytes()
    assert second.options == first.options


def test_symbolic_sizes(model: Path) -> None:
    model.write_text("def @main(%x: Tensor[(n, 3), float32]) { nn.relu(%x) }")
    cold, found = weft.compile(model), weft.compile(model)
    assert type(found) is type(cold) is weft.Executable
    assert type(found.recompiler).__name__ == "_Again"
    for rows in (1, 7):
        x = np.ones((rows, 3), np.float32)
        assert np.array_equal(found(x), x)
    fixed = [made.specialize({"x": (2, 3)}).manifest.signature() for made in (found, cold)]
    assert fixed[0] == fixed[1]


def test_recorded_programs_start_from_the_cache(model: Path, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    def run(factor: int) -> tuple[bool, list[float]]:
        made = compile_recorded(weft.parse(TEXT.format(factor)))
        return type(made.recompiler).__name__ == "_Again", made(X).tolist()

    assert [run(factor) for factor in (2, 2, 3)] == [
        (False, [2, 4, 6]), (True, [2, 4, 6]), (False, [3, 6, 9])]
    monkeypatch.setattr(warm_start, "is_extended", lambda: True)
    assert run(2) == (False, [2, 4, 6])
    assert not is_warm(model)


def test_what_a_user_registers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "_CHANGED_BY_USERS", ())
    monkeypatch.setattr(warm_start, "_own_hooks", lambda: True)
    assert not warm_start.is_extended()
    monkeypatch.setattr(rules, "REGISTERED_RULES", {"a rule": None})
    assert warm_start.is_extended()
    monkeypatch.undo()
    monkeypatch.setattr(warm_start, "_CHANGED_BY_USERS", ("weft.support",))
    assert warm_start.is_extended()


def test_front_ends_and_converters_of_the_user_are_noticed(monkeypatch: pytest.MonkeyPatch
                                                           ) -> None:
    monkeypatch.setattr(warm_start, "_CHANGED_BY_USERS", ())
    monkeypatch.setattr(warm_start, "_own_hooks", lambda: True)
    registry = importlib.import_module("weft.frontend.tflite.registry")
    assert not warm_start.is_extended()
    with monkeypatch.context() as changed:
        changed.setattr(registry.CONVERTERS, "_entries", {"Scale": {1: is_warm}})
        assert warm_start.is_extended()
    monkeypatch.setitem(source.FRONT_ENDS, "of the user",
                        source.FrontEnd("of the user", "package.module:open_model", (".ir",)))
    assert warm_start.is_extended()


@pytest.mark.slow
@pytest.mark.parametrize(("run", "cold", "warm"), [
    ("weft.compile({!r})", "True True", "False False"),
    ("(weft.ones(3) + 1).numpy()", "True True", "False True")], ids=["file", "tensors"])
def test_no_compiler_is_imported(model: Path, tmp_path: Path, run: str, cold: str, warm: str
                                 ) -> None:
    code = ("import sys, weft, weft.support.file_content as state\n"
            f"state.RACY_NS = 0\n{run.format(str(model))}\n"
            "print('llvmlite' in sys.modules, 'weft.ir' in sys.modules)")
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache"), "WEFT_VERIFY": "1"}
    texts = [subprocess.run([sys.executable, "-c", code], env=environment, check=True,
                            capture_output=True, text=True).stdout for _ in range(2)]
    assert texts == [f"{cold}\n", f"{warm}\n"]
