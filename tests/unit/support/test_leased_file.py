"""Files that are mapped stay what they were, whatever others do to them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from weft.support import file_content, leased_file
from weft.support.file_content import FileContent
from weft.support.leased_file import LeasedFile

DATA = bytes(range(256)) * (8 << 10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "model").write_bytes(DATA)
    return tmp_path / "model"


def is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_a_file_is_mapped_while_it_is_held(path: Path) -> None:
    file = FileContent(path)
    with file.held():
        found = file.content()
        assert bytes(found.data) == DATA
        assert is_mapped(path)
        assert found.digest == file_content.file_digest(path)
        del found
    assert not is_mapped(path)


def test_a_file_that_is_not_held_is_read(path: Path) -> None:
    found = FileContent(path).content()
    path.write_bytes(b"")
    assert bytes(found.data) == DATA


@pytest.mark.parametrize("is_truncated", [True, False], ids=["truncated", "overwritten"])
def test_a_writer_waits_until_the_content_is_in_memory(path: Path, is_truncated: bool) -> None:
    file = FileContent(path)
    with file.held():
        found = file.content()
        array = np.frombuffer(found.data, np.uint8)
        begin = time.monotonic()
        path.write_bytes(b"" if is_truncated else b"x" * len(DATA))
        assert time.monotonic() - begin < 20
        assert array.tobytes() == DATA
        assert not is_mapped(path)
        assert found.digest == file_content.digest_of(DATA).hex()
        assert not array.flags.writeable
    assert array.tobytes() == DATA


def test_views_stay_valid_after_the_file_was_released(path: Path, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    monkeypatch.setattr(file_content, "_VIEWED_SECONDS", 0)
    file = FileContent(path)
    with file.held():
        array = np.frombuffer(file.content().data, np.uint8)[5:]
    while is_mapped(path):
        time.sleep(0.01)
    path.write_bytes(b"")
    assert array.tobytes() == DATA[5:]


def test_a_file_that_is_hashed_is_unmapped_afterwards(path: Path, monkeypatch: pytest.MonkeyPatch
                                                      ) -> None:
    may_hash, digest_of = threading.Event(), file_content.digest_of

    def hash_later(data: memoryview) -> bytes:
        assert may_hash.wait(20)
        return digest_of(data)

    monkeypatch.setattr(file_content, "digest_of", hash_later)
    file = FileContent(path)
    with file.held():
        file.content()
    assert is_mapped(path)
    may_hash.set()
    while is_mapped(path):
        time.sleep(0.01)


def test_content_in_memory_keeps_no_file_open(path: Path) -> None:
    file = FileContent(path)
    with file.held():
        array = np.frombuffer(file.content().data, np.uint8)
        path.write_bytes(b"")
        assert array.tobytes() == DATA
    entries = Path("/proc/self/fd").iterdir()
    assert path not in [entry.readlink() for entry in entries if entry.exists()]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_keeps_the_content(path: Path) -> None:
    """Its copies of maps are not looked after: nobody would move them to memory for a writer."""
    file = FileContent(path)
    to_child, to_parent = os.pipe(), os.pipe()
    with file.held():
        array = np.frombuffer(file.content().data, np.uint8)
        child = os.fork()
        if child == 0:
            os.read(to_child[0], 1)
            is_same = not is_mapped(path) and array.tobytes() == DATA
            os.write(to_parent[1], b"same" if is_same else b"changed")
            os._exit(0)
    os.close(to_parent[1])  # so that reading ends with the child
    path.write_bytes(b"")
    os.write(to_child[1], b"x")
    assert os.read(to_parent[0], 10) == b"same"
    assert os.waitpid(child, 0) == (child, 0)
    for end in (*to_child, to_parent[0]):
        os.close(end)


def test_files_of_servers_are_not_mapped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease does not keep a server behind FUSE from changing or losing the file."""
    monkeypatch.setattr(leased_file, "_LOCAL", frozenset({0x65735546}))
    with path.open("rb") as file:
        assert LeasedFile.of(file.fileno()) is None


def test_a_file_that_somebody_writes_to_is_not_mapped(path: Path) -> None:
    with path.open("r+b") as writer, path.open("rb") as reader:
        assert LeasedFile.of(reader.fileno()) is None
        file = FileContent(path)
        with file.held():
            found = file.content()
            writer.write(b"x" * len(DATA))
            writer.flush()
            assert bytes(found.data) == DATA


def test_small_files_and_pipes_are_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 1000)
    with (tmp_path / "small").open("rb") as small:
        assert LeasedFile.of(small.fileno()) is None
    ends = os.pipe()
    assert LeasedFile.of(ends[0]) is None
    for end in ends:
        os.close(end)
