"""Functions of the C library."""

from __future__ import annotations

import errno
import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.support.libc import reserve_space, trim_heap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has these functions")


def test_space_is_reserved_or_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "entry").open("wb") as file:
        reserve_space(file.fileno(), 1 << 20)
        assert os.fstat(file.fileno()).st_size in (0, 1 << 20)  # 0: where that is not known
        with pytest.raises(OSError) as refused:
            reserve_space(file.fileno(), 1 << 60)
        assert refused.value.errno in (errno.ENOSPC, errno.EFBIG)


def test_what_has_no_space_is_left_alone() -> None:
    ends = os.pipe()
    reserve_space(ends[1], 1 << 20)
    for end in ends:
        os.close(end)


def resident() -> int:
    """The memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text("utf-8").split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps free memory so")
def test_free_memory_below_used_memory_is_given_back() -> None:
    parts = [np.ones(16 << 10, np.uint8) for _ in range(2000)]
    del parts[:-1]
    before = resident()
    trim_heap()
    assert resident() < before - (16 << 20)
    assert parts[0].all()
