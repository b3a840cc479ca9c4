"""Shared objects."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.unit.runtime.programs import objects
from weft.codegen.elf.linker import link_shared
from weft.runtime.library import SharedLibrary
from weft.support.errors import ArtifactError


@pytest.fixture(scope="module")
def code() -> bytes:
    return link_shared(objects())


def mapped(part: str) -> int:
    return Path("/proc/self/maps").read_text().count(part)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_symbols_are_found_and_others_are_not(code: bytes) -> None:
    library = SharedLibrary.from_bytes(code)
    assert library.address("weft_main") != library.address("weft_fma_peak")
    with pytest.raises(ArtifactError, match="does not define 'nothing'"):
        library.address("nothing")


def test_two_libraries_do_not_mix(code: bytes) -> None:
    first, second = SharedLibrary.from_bytes(code), SharedLibrary.from_bytes(code)
    assert first.address("weft_main") != second.address("weft_main")


def test_unmapped_and_closed_when_it_goes(code: bytes) -> None:
    gc.collect()
    before, descriptors = mapped("memfd:weft"), open_files()
    library = SharedLibrary.from_bytes(code)
    assert mapped("memfd:weft") > before
    del library
    gc.collect()
    assert mapped("memfd:weft") == before
    assert open_files() == descriptors


def test_from_a_file_where_memory_files_are_forbidden(
    code: bytes, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "memfd_create", refuse)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert SharedLibrary.from_bytes(code).address("weft_main")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("data", [b"", b"text", b"\x7fELF" + bytes(200)])
def test_what_is_no_library(data: bytes) -> None:
    descriptors = open_files()
    with pytest.raises(ArtifactError, match="cannot load"):
        SharedLibrary.from_bytes(data)
    assert open_files() == descriptors
