"""Records of compiled files in the disk cache."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from weft.compiler.request import CompileRequest
from weft.compiler.warm_start.state import FileState, FileStates, file_state, request_key
from weft.support.cache import DiskCache, EntryState, open_cache
from weft.support.config import config


def is_for_files(request: CompileRequest) -> bool:
    """Whether the request has a path, and nothing that decides about code and has no digest."""
    return (isinstance(request.model, (str, os.PathLike)) and request.example_inputs is None
            and not (request.passes or request.rules or request.tir_passes or request.codegens)
            and set(request.knobs) <= {"threads"} and not config.hash_models)


def remember(request: CompileRequest, before: FileStates, code_key: str) -> None:
    """Record that the code of files, which had the states ``before``, is the entry ``code_key``.

    The first one is the model, the others hold its weights. Nothing is recorded if one has changed
    meanwhile, or just before.
    """
    cache = open_cache()
    if cache is None or not is_for_files(request):
        return
    path = Path(os.fspath(request.model))  # type: ignore[arg-type] - as is_for_files says
    entry = cache.state(code_key)
    if entry is not None and _have_states(before):
        record = json.dumps({"files": before, "key": code_key, "entry": entry})
        cache.put(request_key(request, path), record.encode())


def recall(cache: DiskCache, request: CompileRequest) -> tuple[str, EntryState] | None:
    """The key and state of the entry with the code of an unchanged file."""
    path = Path(os.fspath(request.model))  # type: ignore[arg-type] - as is_for_files says
    text = None if file_state(path) is None else cache.get(request_key(request, path))
    if text is None:
        return None
    record = json.loads(bytes(text))
    if not _have_states([(name, tuple(state)) for name, state in record["files"]]):
        return None
    return record["key"], tuple(record["entry"])


def _have_states(files: Iterable[tuple[str, FileState | None]]) -> bool:
    return all(state is not None and file_state(path) == state for path, state in files)
