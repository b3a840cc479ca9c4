"""Modules on a worker, which opens an artifact once and runs batches."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import weft
from weft.runtime.devices.cpu import host
from weft.support.errors import ArtifactError, WorkerError

# The modules that stay open in a worker.
_KEPT = 4
_modules: OrderedDict[str, tuple[Any, tempfile.TemporaryDirectory[str]]] = OrderedDict()
_lock = threading.Lock()


def run_batch(digest: str, artifact: bytes, batch: Any) -> tuple[float, Any]:
    """The seconds that a batch took, and the outputs of the module for it.

    A mapping holds the inputs by name, a tuple or list by position; another batch is the one input.
    """
    return _timed(lambda: call_module(opened_module(digest, artifact), batch))


def run_function(function: Callable[[Any], Any], batch: Any) -> tuple[float, Any]:
    """The seconds that a function of a batch took, and its result."""
    return _timed(lambda: function(batch))


def call_module(module: Any, batch: Any) -> Any:
    """The outputs of a module for a batch."""
    if isinstance(batch, Mapping):
        return module(**batch)
    return module(*batch) if isinstance(batch, tuple | list) else module(batch)


def opened_module(digest: str, artifact: bytes) -> Any:
    """The module of an artifact with this digest, opened at its first use."""
    with _lock:
        if digest not in _modules:
            _modules[digest] = open_module(artifact)
        _modules.move_to_end(digest)
        while len(_modules) > _KEPT:
            _, (_, folder) = _modules.popitem(last=False)
            folder.cleanup()  # what is mapped stays
        return _modules[digest][0]


def open_module(artifact: bytes) -> tuple[Any, tempfile.TemporaryDirectory[str]]:
    """The module of an artifact, and the folder with its file.

    Raises ``WorkerError`` if this CPU cannot run it.
    """
    folder = tempfile.TemporaryDirectory(prefix="weft-worker-")
    path = Path(folder.name) / "module.weft"
    path.write_bytes(artifact)
    return load_module(path), folder


def load_module(path: Path) -> Any:
    """The module of an artifact; ``WorkerError`` if this CPU cannot run it."""
    try:
        return weft.load(path)
    except ArtifactError as error:
        raise WorkerError("a worker cannot run the module", where=host.model_name(),
                          expected=error.expected, got=error.got,
                          notes=[error.what, *error.notes], help=error.help) from None


def _timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    outputs = run()
    return time.perf_counter() - start, outputs
