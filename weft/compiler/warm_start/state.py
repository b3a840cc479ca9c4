"""What decides about the code of a file, without reading the file or importing the compiler."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import weft
from weft.compiler.request import CompileRequest
from weft.runtime import cpu
from weft.support.cache import default_directory
from weft.support.config import config, knobs
from weft.support.log import Level, enabled

# Device, inode, size, and times of modification and change in nanoseconds.
FileState: TypeAlias = "tuple[int, int, int, int, int]"
# Paths with the states before the files were read; ``None`` if one had changed just before.
FileStates: TypeAlias = "tuple[tuple[str, FileState | None], ...]"

# A file that changes twice within the resolution of its times has the same state afterwards.
RACY_NS = 2_000_000_000
_LIBRARIES = ("llvmlite", "numba", "numpy", "ml_dtypes", "onnx")
# Settings that do not decide about code.
_WITHOUT_EFFECT = frozenset(["build_jobs", "cache_dir", "cache_size", "debug", "hash_models",
                             "no_cache", "perf_map", "seed", "threads", "trace"])


def shows_stages() -> bool:
    """Whether settings ask to show or verify stages, so that a compilation needs to run."""
    return bool(enabled(Level.CHOICES) or config.dump_dir or config.print_after
                or config.print_before or config.explain or config.verify >= 2
                or config.time_passes)


def file_state(path: str | os.PathLike[str]) -> FileState | None:
    """The state of a file; ``None`` if there is none, or if it changed within two seconds."""
    try:
        found = os.stat(path)  # noqa: PTH116 - also takes what Path refuses
    except (OSError, ValueError):
        return None
    return state_at(found, time.time_ns())


def state_at(found: os.stat_result, now: int) -> FileState | None:
    """The state that a file had at a time in nanoseconds; ``None`` if it had just changed."""
    if now - max(found.st_mtime_ns, found.st_ctime_ns) < RACY_NS:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def request_key(request: CompileRequest, path: Path) -> str:
    """A digest of all that decides about the code of ``path`` besides its content."""
    settings = {name: getattr(config, name) for name in knobs() if name not in _WITHOUT_EFFECT}
    records = None if config.records is None else file_state(config.records)
    parts = (path.absolute(), request.target, _shapes(request), request.opt_level,
             request.specialize, request.state, request.outputs, request.devices,
             request.placement, request.soft_placement, settings, records, *_machine(),
             *_compiler())
    digest = hashlib.sha256(b"warm start")
    for part in parts:
        digest.update(f"{part!s}\0".encode())
    return digest.hexdigest()


def _shapes(request: CompileRequest) -> object:
    given = request.inputs
    return None if given is None else [(name, tuple(shape)) for name, shape in given.items()]


def _machine() -> Iterator[object]:
    yield cpu.machine(), sorted(cpu.host_features()), cpu.model_name()
    yield [cpu.cache_bytes(level, 0) for level in (1, 2, 3)]
    # What ``weft calibrate`` stored decides too: its folder changes with each file.
    measured = default_directory() / "machines"
    yield measured.stat().st_mtime_ns if measured.is_dir() else 0


def _compiler() -> Iterator[object]:
    """The state of weft's sources, of the libraries that affect its output, and of plug-ins."""
    root = os.path.dirname(weft.__file__)  # noqa: PTH120 - a tenth of the time of Path
    yield from sorted(source_states(root))
    for name in _LIBRARIES:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        yield name, origin, None if origin is None else os.stat(origin).st_mtime_ns  # noqa: PTH116
    for folder in sys.path:  # a plug-in that is installed changes its folder
        if folder.endswith(("site-packages", "dist-packages")) and os.path.isdir(folder):  # noqa: PTH112
            yield folder, os.stat(folder).st_mtime_ns  # noqa: PTH116


def source_states(folder: str) -> Iterator[tuple[str, int, int]]:
    """The path, size and modification time in nanoseconds of each Python file below a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from source_states(entry.path)
