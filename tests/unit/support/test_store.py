"""Stores behind the disk cache: what is read from them, and what damages them."""

import hashlib

import pytest

from weft.support.cache import DiskCache, Store, open_cache, recorded_keys
from weft.support.config import config
from weft.support.fallback import FallbackWarning

KEY, OTHER = (hashlib.sha256(text).hexdigest() for text in (b"a", b"b"))


@pytest.fixture
def store(tmp_path):
    """A folder with one entry."""
    DiskCache(tmp_path / "store").put(KEY, b"stored")
    return tmp_path / "store"


def test_the_cache_comes_first_and_stores_follow_in_order(store, tmp_path):
    DiskCache(tmp_path / "second").put(KEY, b"second")
    DiskCache(tmp_path / "second").put(OTHER, b"other")
    with config(cache_dir=tmp_path / "cache", store=[store, tmp_path / "second"]):
        cache = open_cache()
    assert bytes(cache.get(KEY)) == b"stored"
    assert bytes(cache.get(OTHER)) == b"other"
    assert cache.usage().entries == 0  # nothing is copied
    cache.put(KEY, b"own")
    assert bytes(cache.get(KEY)) == b"own"
    cache.clear()
    assert bytes(cache.get(KEY)) == b"stored"  # stores are not cleared


@pytest.mark.parametrize("length", [0, 63, 66])
def test_a_truncated_entry_of_a_store_counts_as_absent_and_stays(store, tmp_path, length):
    path = Store(store).path(KEY)
    path.write_bytes(path.read_bytes()[:length])
    cache = DiskCache(tmp_path / "cache", stores=[Store(store)])
    assert cache.get(KEY) is None
    assert path.stat().st_size == length


def test_a_damaged_entry_of_a_store_is_made_again_in_the_cache(store, tmp_path):
    path = Store(store).path(KEY)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    cache = DiskCache(tmp_path / "cache", stores=[Store(store)])
    assert cache.get(KEY) is None
    assert cache.put(KEY, b"made")
    assert bytes(cache.get(KEY)) == b"made"


def test_reading_changes_no_file_of_a_store(store, tmp_path):
    path = Store(store).path(KEY)
    before = path.stat()
    DiskCache(tmp_path / "cache", stores=[Store(store)]).get(KEY)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@pytest.mark.parametrize(("damage", "reason"), [
    (lambda store: store.chmod(0o777), "all users may write"),
    (lambda store: store.rename(store.parent / "moved"), "is not a folder"),
], ids=["unsafe", "missing"])
def test_a_store_that_cannot_be_used_is_reported_and_left_out(store, tmp_path, damage, reason):
    damage(store)
    with config(cache_dir=tmp_path / "cache", store=[store]), \
            pytest.warns(FallbackWarning) as caught:
        cache = open_cache()
    assert reason in str(caught[0].message)
    assert "WEFT_STORE" in str(caught[0].message)
    assert cache.get(KEY) is None


def test_looked_up_keys_are_recorded(store, tmp_path):
    cache = DiskCache(tmp_path / "cache", stores=[Store(store)])
    with recorded_keys() as keys:
        cache.get(KEY)
        cache.get(OTHER)
    cache.get("ff")
    assert keys == {KEY, OTHER}
