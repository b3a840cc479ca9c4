"""Models that were compiled before start from the disk cache without the compiler.

``weft.compile(path)`` of an unchanged file reads neither the file nor the front end, as ``git
status`` does not read files that it knows: a record in the cache holds the state of the file
(inode, size, times) and the key of its code. Code and weights are mapped from the cache entry.
The record of a recorded program of tensors is found by the hash of the program.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import weft
from weft.compiler.compilation import Compilation, Compiler
from weft.compiler.request import CompileRequest
from weft.runtime.artifact_format import CodePayload, read_payload
from weft.runtime.devices.cpu import host
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary, loads_objects
from weft.runtime.devices.cpu.threads import num_threads
from weft.runtime.executable import Executable, open_executable
from weft.runtime.launchers import Code, check_machine, launcher_of
from weft.support.cache import DiskCache, EntryState, default_directory, open_cache
from weft.support.config import config, knobs, report_unknown_variables
from weft.support.errors import ArtifactError
from weft.support.fallback import report_all
from weft.support.file_content import FileState, FileStates, file_state, own_sources
from weft.support.log import Level, debug, enabled
from weft.support.plugins import LIBRARIES
from weft.support.records_file import records_file, records_state

if TYPE_CHECKING:
    from weft.compiler.program.code import ModelCode
    from weft.ir.module import IRModule

WARM = "warm: code and weights came from the disk cache"
# Modules that users import to change what weft compiles.
_CHANGED_BY_USERS = ("weft.strategy", "weft.codegen", "weft.tir.transform.registered",
                     "weft.transform.external", "weft.compiler.extensions")
# Tables of modules that processes also import for other purposes, to which users may add.
_TABLES_OF_USERS = {"weft.ir.passes": "INSERTED_PASSES",
                    "weft.ir.rewrite.rules": "REGISTERED_RULES"}
_FRONT_ENDS = ("onnx", "stablehlo", "tflite", "torch")
# Settings that do not decide about code.
_WITHOUT_EFFECT = frozenset(["build_jobs", "cache_dir", "cache_size", "debug", "hash_models",
                             "no_cache", "perf_map", "seed", "store", "threads", "trace"])


def open_warm(model: Path | IRModule, request: CompileRequest, again: Callable[[], Compiler]
              ) -> Executable | None:
    """The executable of an unchanged file, or of a program, from the disk cache; ``None``: compile
    it.

    ``again`` gives the compiler of the model, for what the cache does not have.
    A process that has imported the compiler compiles: its user may have registered operators or
    passes since. So may the user of one that has not (``is_extended``).
    """
    if compiler_is_loaded() or not loads_objects() or not _has_digest(request) or is_extended():
        return None
    with request.settings():
        cache = None if shows_stages() else open_cache()
        found = None if cache is None else _recall(cache, model, request)
        payload = None if cache is None or found is None else cache.get_unchanged(*found)
        if payload is None:
            return None
        report_unknown_variables()
        debug(Level.CACHE, "compiler", "the whole model was in the cache")
        return _opened(read_payload(payload), request, again)


def compiler_is_loaded() -> bool:
    """Whether this process has imported the compiler."""
    return "weft.compiler.compile_model" in sys.modules


def is_extended() -> bool:
    """Whether the user may have changed what weft compiles: strategies, loops, back ends, passes,
    rules, front ends, converters, or hooks of operators.
    """
    if not sys.modules.keys().isdisjoint(_CHANGED_BY_USERS):
        return True
    tables = [getattr(sys.modules.get(module), table, ())
              for module, table in _TABLES_OF_USERS.items()]
    tables += [converters.of_users() for name in _FRONT_ENDS if (converters := getattr(
        sys.modules.get(f"weft.frontend.{name}.registry"), "CONVERTERS", None)) is not None]
    openers = [one.opener for one in getattr(
        sys.modules.get("weft.frontend.source"), "FRONT_ENDS", {}).values()]
    return any(map(len, tables)) or not all(map(_is_own, openers)) or not _own_hooks()


def _is_own(module: str) -> bool:
    return module.startswith("weft.")


def _own_hooks() -> bool:
    """Whether weft defined all hooks of operators; users have not touched unloaded ones."""
    operators = getattr(sys.modules.get("weft.ir"), "OPS", None)
    return operators is None or all(
        _is_own(origin.module)
        for name in operators.loaded() for origin in operators.get(name).origins.values())


def shows_stages() -> bool:
    """Whether settings ask to show or verify stages, so that a compilation needs to run."""
    return bool(enabled(Level.CHOICES) or config.dump_dir or config.print_after
                or config.print_before or config.explain or config.verify >= 2
                or config.time_passes)


def remember(model: Path | IRModule, request: CompileRequest, before: FileStates, code_key: str
             ) -> None:
    """Record that the code of files, which had the states ``before``, is the entry ``code_key``.

    The first one is the model, the others hold its weights. Nothing is recorded if one has changed
    meanwhile, or just before. A program has no files.
    """
    cache = open_cache()
    if cache is None or not _has_digest(request) or (isinstance(model, Path) and not before):
        return
    entry = cache.state(code_key)
    if entry is not None and _have_states(before):
        record = json.dumps({"files": before, "key": code_key, "entry": entry}).encode()
        key = request_key(model, request)
        if isinstance(model, Path) or cache.get(key) != record:
            cache.put(key, record)


def _recall(cache: DiskCache, model: Path | IRModule, request: CompileRequest
            ) -> tuple[str, EntryState] | None:
    """The key and state of the entry with the code of an unchanged file, or of a program."""
    gone = isinstance(model, Path) and file_state(model) is None
    text = None if gone else cache.get(request_key(model, request))
    if text is None:
        return None
    record = json.loads(bytes(text))
    if not _have_states([(name, tuple(state)) for name, state in record["files"]]):
        return None
    return record["key"], tuple(record["entry"])


def _have_states(files: Iterable[tuple[str, FileState | None]]) -> bool:
    return all(state is not None and file_state(path) == state for path, state in files)


def _has_digest(request: CompileRequest) -> bool:
    """Whether ``request_key`` covers all of a request that decides about code."""
    return (not (request.passes or request.rules or request.tir_passes or request.codegens)
            and set(request.knobs) <= {"threads", "precision"} and not config.hash_models)


def request_key(model: Path | IRModule, request: CompileRequest) -> str:
    """A digest of what decides about the code of a program, or of a file besides its content."""
    settings = {name: getattr(config, name) for name in knobs() if name not in _WITHOUT_EFFECT}
    records = _records()
    subject: object
    if isinstance(model, Path):
        subject = model.absolute()
    else:
        from weft.ir.structural import program_hash

        subject = program_hash(model)
    parts = (subject, request.target, _shapes(request), request.opt_level,
             request.specialize, request.state, request.outputs, request.devices,
             request.placement, request.soft_placement, settings, records, _machine(),
             _measured(), _compiler())
    digest = hashlib.sha256(b"warm start")
    for part in parts:
        digest.update(f"{part!s}\0".encode())
    return digest.hexdigest()


def _records() -> tuple[int, ...] | None:
    path = records_file()
    try:
        return None if path is None else (num_threads(), *records_state(path))
    except OSError:
        return None


def _shapes(request: CompileRequest) -> object:
    given = request.inputs
    return None if given is None else [(name, tuple(shape)) for name, shape in given.items()]


@functools.cache
def _machine() -> str:
    return str((host.machine(), sorted(host.host_features()), host.model_name(),
                [host.cache_bytes(level, 0) for level in (1, 2, 3)]))


def _measured() -> int:
    """The state of what ``weft calibrate`` stored: its folder changes with each file."""
    measured = default_directory() / "machines"
    return measured.stat().st_mtime_ns if measured.is_dir() else 0


@functools.cache
def _compiler() -> str:
    """A digest of what ``_states`` tells, once a process."""
    return hashlib.sha256(str([*_states()]).encode()).hexdigest()


def _states() -> Iterator[object]:
    """The states of weft's sources, of the libraries that affect its output, and of plug-ins."""
    root = os.path.dirname(weft.__file__)  # noqa: PTH120 - a tenth of the time of Path
    yield from own_sources(root)
    for name in LIBRARIES:
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        yield name, origin, None if origin is None else os.stat(origin).st_mtime_ns  # noqa: PTH116
    for folder in sys.path:  # a plug-in that is installed changes its folder
        if folder.endswith(("site-packages", "dist-packages")) and os.path.isdir(folder):  # noqa: PTH112
            yield folder, os.stat(folder).st_mtime_ns  # noqa: PTH116


def _opened(payload: CodePayload, request: CompileRequest, again: Callable[[], Compiler]
            ) -> Executable | None:
    manifest = replace(payload.manifest, threads=request.threads())
    if manifest.target.kind != "cpu" or not launcher_of(manifest).starts_from_objects:
        return None
    try:
        check_machine(manifest.target)
    except ArtifactError:  # code for another CPU
        return None
    report_all(manifest.fallbacks)
    return open_executable(
        Code(manifest, lambda: ObjectLibrary(payload.objects), payload.constants, start=WARM),
        _Again(again, counts=bool(manifest.counts)))


class _Again(Compilation):
    """The compilation of a model that came from the cache, repeated when it is needed."""

    def __init__(self, again: Callable[[], Compiler], *, counts: bool) -> None:
        super().__init__(None, None, counts=counts)
        self._again = again

    @functools.cached_property
    def compiler(self) -> Compiler:
        """See ``Compilation``."""
        return self._again()

    @functools.cached_property
    def code(self) -> ModelCode:
        """See ``Compilation``."""
        return self.compiler.code()
