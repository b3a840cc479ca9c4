"""Which files of a package are its sources; files that are hashed after they are read."""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

import numpy as np
import pytest

from weft.support import file_content
from weft.support.file_content import PART_BYTES, FileContent, PartChecksum


def test_tables_of_machines_are_sources(tmp_path: Path) -> None:
    """They decide about code, as the prelude does: a changed one has other cache keys."""
    for name in ("code.py", "machine.toml", "prelude.weft", "notes.txt"):
        (tmp_path / name).write_text("")
    found = {Path(path).name for path, *_ in file_content.source_states(str(tmp_path))}
    assert found == {"code.py", "machine.toml", "prelude.weft"}


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Content is hashed when this is set."""
    may_hash, digest_of = threading.Event(), file_content.digest_of

    def hash_later(data: memoryview) -> bytes:
        assert may_hash.wait(20)
        return digest_of(data)

    monkeypatch.setattr(file_content, "digest_of", hash_later)
    return may_hash


def test_content_is_there_before_its_digest(tmp_path: Path, hashing: threading.Event) -> None:
    data = bytes(range(256)) * 100
    (tmp_path / "model").write_bytes(data)
    file = FileContent(tmp_path / "model")
    with file.held():
        found = file.content()
        assert bytes(found.data) == data
        hashing.set()
        assert found.digest == file_content.file_digest(tmp_path / "model")


def test_memory_is_given_back_after_it_was_hashed(tmp_path: Path, hashing: threading.Event
                                                  ) -> None:
    data = b"\1" * (8 * mmap.PAGESIZE)
    (tmp_path / "model").write_bytes(data)
    file = FileContent(tmp_path / "model")
    with file.held():
        found = file.content()
        file.drop(0, mmap.PAGESIZE)
        assert bytes(found.data) == data
        hashing.set()
        assert found.digest == file_content.file_digest(tmp_path / "model")
        file.drop(mmap.PAGESIZE, 2 * mmap.PAGESIZE)
        if hasattr(mmap, "MADV_DONTNEED"):
            assert bytes(found.data) == b"\0" * (2 * mmap.PAGESIZE) + data[2 * mmap.PAGESIZE:]


def test_digests_of_files_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    found = file_content.digests_later([tmp_path / "a", tmp_path / "b"])
    assert found() == (file_content.file_digest(tmp_path / "a"),
                       file_content.file_digest(tmp_path / "b"))
    with pytest.raises(FileNotFoundError):
        file_content.digests_later([tmp_path / "none"])()


def part_of(number: int) -> bytearray:
    return bytearray(np.random.default_rng(number).bytes(PART_BYTES))


def checksum(*pieces: bytes) -> bytes:
    made = PartChecksum()
    for piece in pieces:
        made.update(piece)
    return made.digest()


@pytest.mark.parametrize("size", [0, 100, PART_BYTES, PART_BYTES + 13])
def test_a_checksum_depends_on_the_bytes_alone(size: int) -> None:
    data = bytes(part_of(0) + part_of(1))[:size]
    assert checksum(data) == checksum(data[:7], data[7 : PART_BYTES - 3], data[PART_BYTES - 3 :])
    assert len(checksum(data)) == 32


@pytest.mark.parametrize("first", [0, 12345, PART_BYTES - 8240])
def test_a_checksum_tells_of_damage(first: int) -> None:
    data = part_of(0)
    expected = checksum(data)
    moved = bytes(reversed(data[first : first + 8240]))
    for damage in (bytes([data[first] ^ 1]), bytes(8240), moved):
        changed = data[:]
        changed[first : first + len(damage)] = damage
        assert checksum(changed) != expected
    pages = data[4096:8192], data[:4096]
    assert checksum(b"".join(pages) + data[8192:]) != expected


@pytest.mark.parametrize("distance", [1, 509, 512, 1018, 1023])
def test_a_checksum_tells_of_pages_that_changed_places(distance: int) -> None:
    data = part_of(0)
    expected = checksum(data)
    at = 4096 * distance
    data[:4096], data[at : at + 4096] = data[at : at + 4096], data[:4096]
    assert checksum(data) != expected
