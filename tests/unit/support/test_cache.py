"""The disk cache under damage, concurrency, killed writers and a read-only disk."""

import hashlib
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

from weft.support.cache import DiskCache, Usage, open_cache
from weft.support.config import config
from weft.support.fallback import FallbackWarning
from weft.support.private_files import objection


def key_of(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_what_is_put_comes_back_aligned(tmp_path):
    cache = DiskCache(tmp_path)
    assert cache.get(key_of("a")) is None
    assert cache.put(key_of("a"), b"hello ", memoryview(b"world"))
    payload = cache.get(key_of("a"))
    assert bytes(payload) == b"hello world"
    assert payload.readonly


@pytest.mark.parametrize("position", [0, 9, 20, 64, 70, -1])
def test_a_damaged_entry_is_dropped(tmp_path, position):
    cache = DiskCache(tmp_path)
    cache.put(key_of("a"), b"some payload")
    path = cache.path(key_of("a"))
    data = bytearray(path.read_bytes())
    data[position] ^= 0x40
    path.write_bytes(data)
    assert cache.get(key_of("a")) is None
    assert not path.exists()
    cache.put(key_of("a"), b"again")
    assert bytes(cache.get(key_of("a"))) == b"again"


@pytest.mark.parametrize("length", [0, 1, 63, 64, 70])
def test_a_truncated_entry_counts_as_absent(tmp_path, length):
    cache = DiskCache(tmp_path)
    cache.put(key_of("a"), b"some payload")
    path = cache.path(key_of("a"))
    path.write_bytes(path.read_bytes()[:length])
    assert cache.get(key_of("a")) is None


def test_the_entries_unused_for_longest_go_first(tmp_path):
    cache = DiskCache(tmp_path, max_bytes=4000)
    for age, name in enumerate("abcd"):
        cache.put(key_of(name), bytes(800))
        os.utime(cache.path(key_of(name)), (1000 + age, 1000 + age))
    cache.get(key_of("a"))  # reading makes it the youngest
    cache.put(key_of("e"), bytes(800))
    cache.evict()
    assert [n for n in "abcde" if cache.get(key_of(n)) is not None] == ["a", "c", "d", "e"]


def test_an_entry_larger_than_the_limit_is_not_written(tmp_path):
    cache = DiskCache(tmp_path, max_bytes=100)
    assert not cache.put(key_of("a"), bytes(100))
    assert cache.usage().entries == 0


def test_an_unwritable_folder_warns_once(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = DiskCache(blocked / "cache")
    with caplog.at_level(logging.WARNING, logger="weft.cache"):
        assert not cache.put(key_of("a"), b"1")
        assert not cache.put(key_of("b"), b"2")
    assert len(caplog.records) == 1
    assert "WEFT_CACHE_DIR" in caplog.text
    assert cache.get(key_of("a")) is None


WRITER = """
import sys, hashlib
from pathlib import Path
from weft.support.cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), max_bytes=1 << 20)
print("ready", flush=True)
step = 0
while step != int(sys.argv[2]):
    key = hashlib.sha256(str(step % 7).encode()).hexdigest()
    cache.put(key, bytes([step % 7]) * 50_000)
    found = cache.get(key)
    assert found is None or bytes(found) == bytes([step % 7]) * 50_000
    step += 1
"""


def start_writer(folder, steps):
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), str(steps)],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_concurrent_writers_never_show_half_an_entry(tmp_path):
    writers = [start_writer(tmp_path, 60) for _ in range(3)]
    for writer in writers:
        _, errors = writer.communicate(timeout=60)
        assert writer.returncode == 0, errors.decode()


def test_a_killed_writer_leaves_only_whole_entries(tmp_path):
    writer = start_writer(tmp_path, -1)
    assert writer.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    cache = DiskCache(tmp_path)
    for step in range(7):
        found = cache.get(key_of(str(step)))
        assert found is None or bytes(found) == bytes([step]) * 50_000


KILLED_AT_EACH_CALL = """
import os, signal, sys
from pathlib import Path
from weft.support import cache_entry
from weft.support.cache import DiskCache
from weft.support.file_content import PART_BYTES

cache = DiskCache(Path(sys.argv[1]))
key, old, new = "ab" * 32, b"old" * 1000, bytes(PART_BYTES) + b"new" * 1000

def killing(real, left):
    def call(*arguments):
        if not left:
            if real is os.pwrite:  # in the middle of a write
                file, data, at = arguments
                real(file, data[: len(data) // 2], at)
            os.kill(os.getpid(), signal.SIGKILL)
        left.pop()
        return real(*arguments)
    return call

assert cache.put(key, old)
for calls in range(100):
    child = os.fork()
    if not child:
        left = [None] * calls
        replace, write = killing(Path.replace, left), killing(os.pwrite, left)
        Path.replace = lambda self, target: replace(self, target)
        os.pwrite = write
        writer = cache.writer(key, len(new))
        writer.place(writer.file(), 0, memoryview(new)[:PART_BYTES])
        writer.join()
        writer.append(new[PART_BYTES:])
        os._exit(0 if cache.keep(writer) else 1)
    _, status = os.waitpid(child, 0)
    found = bytes(cache.get(key))
    if status == 0:
        assert found == new
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert found == old, "torn or lost"
print(calls)
"""


def test_a_writer_that_is_killed_in_any_write_loses_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED_AT_EACH_CALL, str(tmp_path)],
                          capture_output=True, text=True, check=False, timeout=60)
    assert not done.returncode, done.stderr
    assert int(done.stdout) > 5  # parts, the rest, the header, the name


def test_temporaries_of_dead_writers_are_removed(tmp_path):
    cache = DiskCache(tmp_path)
    cache.put(key_of("a"), b"1")
    old = cache.path(key_of("a")).parent / ".tmp-dead"
    young = cache.path(key_of("a")).parent / ".tmp-alive"
    old.write_bytes(b"")
    young.write_bytes(b"")
    os.utime(old, (1000, 1000))
    cache.evict()
    assert not old.exists()
    assert young.exists()


def test_the_configuration_chooses_the_folder_or_none(tmp_path):
    with config(cache_dir=tmp_path / "here"):
        assert open_cache().directory == tmp_path / "here"
        with config(no_cache=True):
            assert open_cache() is None


def test_size_growth_and_use(tmp_path):
    """An entry says when it was written and when it was used last: reading it changes the last."""
    cache, now = DiskCache(tmp_path), time.time()
    days = {"a": (0.5, 0.5), "b": (3, 3), "c": (40, 40), "d": (40, 1)}  # written, used
    for name, (written, used) in days.items():
        cache.put(key_of(name), bytes(36))
        os.utime(cache.path(key_of(name)), (now - used * 86400, now - written * 86400))
    assert cache.usage() == Usage(4, 400, 100, 200, 100)
    cache.get(key_of("c"))
    assert cache.usage() == Usage(4, 400, 100, 200, 0)


def test_clearing_down_to_a_size_keeps_what_was_used_last(tmp_path):
    cache = DiskCache(tmp_path)
    for age, name in enumerate("abcd"):
        cache.put(key_of(name), bytes(36))
        os.utime(cache.path(key_of(name)), (1000 + age, 900))
    stale = cache.path(key_of("a")).parent / ".tmp-left"
    stale.write_bytes(b"")
    os.utime(stale, (1000, 1000))
    held = cache.get(key_of("a"))  # now the youngest
    assert cache.clear(keep=250) == (2, 200)
    assert [n for n in "abcd" if cache.get(key_of(n)) is not None] == ["a", "d"]
    assert not stale.exists()
    assert cache.clear() == (2, 200)
    assert cache.usage().entries == 0
    assert bytes(held) == bytes(36)  # whoever has read an entry keeps it


def test_clearing_while_others_write(tmp_path):
    cache = DiskCache(tmp_path)
    stop, wrong = threading.Event(), []

    def write(number):
        while not stop.is_set():
            key = key_of(f"{number}")
            cache.put(key, bytes([number]) * 500)
            found = cache.get(key)
            wrong.extend([found] * (found is not None and bytes(found) != bytes([number]) * 500))

    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for writer in writers:
        writer.start()
    for _ in range(50):
        cache.clear()
    stop.set()
    for writer in writers:
        writer.join()
    assert not wrong
    cache.put(key_of("a"), b"a")
    assert cache.get(key_of("a")) == b"a"


@pytest.fixture
def others(tmp_path):
    """A folder that all users may write, with an entry and a folder of entries."""
    folder = tmp_path / "shared"
    cache = DiskCache(folder)
    assert cache.put(key_of("a"), b"code")
    folder.chmod(0o777)
    return folder


def test_folders_and_entries_are_of_the_user_alone(tmp_path):
    cache = DiskCache(tmp_path / "deep" / "cache")
    cache.put(key_of("a"), b"code")
    path = cache.path(key_of("a"))
    assert [stat.S_IMODE(p.stat().st_mode) for p in (path, *path.parents[:3])] \
        == [0o600, 0o700, 0o700, 0o700]


def test_a_folder_that_others_may_write_is_neither_read_nor_written(others):
    cache = DiskCache(others)
    assert cache.get(key_of("a")) is None
    assert cache.get_unchanged(key_of("a"), cache.state(key_of("a"))) is None
    assert not cache.put(key_of("b"), b"1")
    others.chmod(0o700)
    assert bytes(DiskCache(others).get(key_of("a"))) == b"code"


@pytest.mark.parametrize("of", ["entry", "folder"])
def test_an_entry_that_others_may_write_is_not_read(others, of):
    others.chmod(0o700)
    path = DiskCache(others).path(key_of("a"))
    changed = path if of == "entry" else path.parent
    changed.chmod(0o777)
    assert DiskCache(others).get(key_of("a")) is None


def test_a_link_in_the_place_of_an_entry_is_not_read(others):
    others.chmod(0o700)
    cache = DiskCache(others)
    path = cache.path(key_of("a"))
    path.rename(others / "elsewhere")
    path.symlink_to(others / "elsewhere")
    assert cache.get(key_of("a")) is None


def test_an_unsafe_folder_is_reported_with_a_cure(others):
    with config(cache_dir=others), pytest.warns(FallbackWarning) as caught:
        assert open_cache() is None
    text = str(caught[0].message)
    assert f"all users may write {others}" in text
    assert "chmod -R go-w" in text
    others.chmod(0o700)
    with config(cache_dir=others):
        assert open_cache() is not None


def test_files_of_other_users_are_refused_by_name(tmp_path):
    found = os.stat_result((0o40700, 1, 1, 2, os.geteuid() + 4321, 0, 0, 0, 0, 0))
    assert f"belongs to user {os.geteuid() + 4321}" in objection(found, tmp_path)
    mine = os.stat_result((0o40770, 1, 1, 2, os.geteuid(), 987654, 0, 0, 0, 0))
    assert "the users of group 987654 may write" in objection(mine, tmp_path)
    of_root = os.stat_result((0o40755, 1, 1, 2, 0, 0, 0, 0, 0, 0))
    assert objection(of_root, tmp_path) is None
