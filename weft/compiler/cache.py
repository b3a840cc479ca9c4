"""The code of models in the disk cache: keys, lookups, and entries that are written piecewise.

The key of a model consists of the digest of its content, the options and weft's own sources. Beside
each entry the cache keeps digests of the parts of its key: they decide about nothing, and tell why
a later start of the same model was not warm.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from weft.compiler.extensions import is_self_contained, may_use_extensions
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode, PerShape
from weft.compiler.program.constants import Memory, OwnBlock
from weft.compiler.program.packing import Packing, byte_bounds
from weft.compiler.warm_start import WARM, shows_stages
from weft.frontend.source import Source, SourceDigest
from weft.ir import Constant, post_order
from weft.runtime.arena import address_of
from weft.strategy.records import active_records
from weft.support.cache import DiskCache, open_cache
from weft.support.cache_entry import EntryWriter
from weft.support.dataclass import dataclass
from weft.support.fallback import FallbackLog, recording, report_all
from weft.support.file_content import FileContent, FileStates, file_state, release_pages
from weft.support.fingerprint import compiler_digest, key_of
from weft.support.interpreter import interrupts_held
from weft.support.libc import trim_heap
from weft.support.log import Level, debug

# Writing this many bytes takes longer than what is left to do after they are packed.
_SLOW_BYTES = 16 << 20
# How much nicer than others a thread is that writes an entry.
_NICER = 10
# More names of parts than these are summed up.
_NAMED = 6

ProgramCode: TypeAlias = "ModelCode | PerShape"
# Notes that the code of files with these states is the entry of a key.
Remember: TypeAlias = "Callable[[FileStates, str], None]"


@dataclass(frozen=True, slots=True)
class ModelKey:
    """``text`` is the key in the cache, ``digest`` that of the model, and ``parts`` those of all
    that the key is made of, by labels.
    """

    text: str
    digest: SourceDigest
    parts: Mapping[str, str]

    @property
    def is_current(self) -> bool:
        """Whether the files of weights beside the model have the states that they had."""
        return all(file_state(path) == state for path, state in self.digest.files[1:])


def cached(source: Source, options: CompileOptions, make: Callable[[Memory], ProgramCode],
           remember: Remember | None = None) -> ProgramCode:
    """The code of a model: from the disk cache, or made and kept there.

    ``make`` takes the memory of constants, which is written to the entry while kernels are built.
    The manifest lists the changes of plan, ``start`` says why the start was not warm.
    """
    start = time.perf_counter()
    with source.held(), recording() as log:
        source.preload()
        code = _found_or_made(source, options, make, remember, log)
        _release_weights(source)
    if isinstance(code, ModelCode) and code.constants.nbytes >= _SLOW_BYTES:
        trim_heap()  # of what passes and packing left
    debug(Level.CACHE, "compiler", f"compiled in {time.perf_counter() - start:.2f} s")
    return code


def _release_weights(source: Source) -> None:
    """Give back the pages of files that the model's weights are mapped from: they are read."""
    functions = () if source.module is None else source.module.functions.values()
    release_pages(node.data for function in functions for node in post_order(function)
                  if isinstance(node, Constant))


def _found_or_made(source: Source, options: CompileOptions, make: Callable[[Memory], ProgramCode],
                   remember: Remember | None, log: FallbackLog) -> ProgramCode:
    cache = None if shows_stages() else open_cache()
    is_new = cache is not None and _is_of_new_size(cache, source)
    if is_new:
        _import_compiler(source)
    key = (lambda: "settings turn the cache off, or ask to show or verify stages") \
        if cache is None else key_later(source, options)
    entry = _Entry(cache, key, source, remember)
    found = None if is_new else entry.read()
    if found is not None:
        return found
    try:
        made = make(entry.memory)
        start = f"cold: {entry.missing()}"
        debug(Level.CACHE, "compiler", start)
        code = replace(made, manifest=replace(made.manifest, fallbacks=log.found), start=start)
        is_current = active_records().digest == options.records  # not if tuning ran meanwhile
        if isinstance(code, ModelCode) and code.improve is not None:
            return replace(code, improve=entry.improving(code, code.improve, is_kept=is_current))
        if isinstance(code, ModelCode) and is_current:
            entry.write(code)
        return code
    finally:
        entry.close()


def _is_of_new_size(cache: DiskCache, source: Source) -> bool:
    """Whether no model in a file of this size was kept, so that compiling need not wait for the
    digest of its content.
    """
    key = _key_of_size(source)
    return key is not None and cache.get(key) is None


def _key_of_size(source: Source) -> str | None:
    try:
        size = None if source.file is None else os.stat(source.file).st_size  # noqa: PTH116
    except (OSError, ValueError):
        return None  # the import reports it
    return None if size is None else key_of("size of a model", source.kind, str(size))


def _import_compiler(source: Source) -> None:
    """Import what a compilation needs, while the file is being read."""
    if source.file is not None and source.file.is_being_read:
        with interrupts_held():
            importlib.import_module("weft.compiler.program.build")


def model_key(source: Source, options: CompileOptions) -> ModelKey | str:
    """The key under which a compiled model is kept, or why it is not kept.

    Not kept are models whose code a user's operator, hook, strategy, pass, rule, converter or code
    generator may decide, because no digest covers the sources of those.
    """
    return key_later(source, options)()


def key_later(source: Source, options: CompileOptions) -> Callable[[], ModelKey | str]:
    """``model_key``, as a function that waits for content that is still being hashed."""
    if options.codegens or options.extensions:
        return lambda: "passes, rules or code generators of the user decide about the code"
    own = source.module.functions.values() if source.module is not None else ()
    if not all(is_self_contained(function, options.target) for function in own):
        return lambda: "operators or strategies of the user decide about the code"
    later = source.digest_later()
    parts = {"weft, or a library that it uses,": compiler_digest()[:16],
             **{f"the option {name}": value for name, value in options.key_parts().items()}}

    @functools.cache
    def key() -> ModelKey | str:
        digest = later()
        if isinstance(digest, str):
            return digest
        if may_use_extensions(digest.operators, options.target):
            return "operators or strategies of the user decide about the code"
        return ModelKey(key_of(source.kind, digest.text, options.key_text()), digest,
                        {**digest.parts, **parts})

    return key


class _Entry:
    """The entry of a model in the cache; its constants are written first, while they are packed.

    ``find_key`` gives the reason for a model that is not kept.
    """

    def __init__(self, cache: DiskCache | None, find_key: Callable[[], ModelKey | str],
                 source: Source, remember: Remember | None) -> None:
        self._cache = cache
        self._find_key = find_key
        self._file = source.file
        self._key_of_size = None if cache is None else _key_of_size(source)
        self._remember = remember
        self._blocks: list[OwnBlock] = []

    def read(self) -> ModelCode | None:
        """The code of the entry, whose changes of plan are reported again; ``None``: no entry."""
        key = self._find_key()
        if self._cache is None or isinstance(key, str):
            return None
        found = self._cache.get(key.text)
        if found is None:
            return None
        debug(Level.CACHE, "compiler", "the whole model was in the cache")
        self._note(self._cache, key)
        code = replace(ModelCode.from_payload(found), start=WARM)
        report_all(code.manifest.fallbacks)
        return code

    def missing(self) -> str:
        """Why there is no entry: the model is not kept, is new, or has other parts than before."""
        key = self._find_key()
        if self._cache is None or isinstance(key, str):
            return str(key)
        identity = key.digest.identity
        if not identity:
            return "the cache has no entry for this program with these options"
        found = self._cache.get(_key_of_parts(identity))
        if found is None:
            return f"the cache has no entry for {identity}"
        return _difference(json.loads(bytes(found)), key.parts) \
            or f"the entry for {identity} was evicted or could not be written"

    def memory(self, is_last: bool) -> OwnBlock:
        """Memory for constants.

        With ``is_last`` the module with the constants is not compiled in another way if this fails,
        so memory with the content of the model's file is given back as it is packed.
        """
        block = OwnBlock(self._writer, _Pages.of(self._file) if is_last else None)
        self._blocks.append(block)
        return block

    def _writer(self, size: int) -> EntryWriter | None:
        key = self._find_key()
        if self._cache is None or isinstance(key, str):
            return None
        return self._cache.writer(key.text, size)

    def write(self, code: ModelCode) -> None:
        """Write the rest of the code, unless files of weights have changed meanwhile.

        Large constants that are not in its file yet are written by a thread, which the interpreter
        waits for before it exits.
        """
        cache, key = self._cache, self._find_key()
        if cache is None or isinstance(key, str) or not key.is_current:
            return
        packing = next((found for block in self._blocks
                        if (found := block.packing_of(code.constants)) is not None), None)
        if packing is None:
            if cache.put(key.text, *code.to_parts()):
                self._note(cache, key)
            return
        self._blocks.clear()  # nothing is left for ``close`` to remove
        if packing.is_mapped or code.constants.nbytes < _SLOW_BYTES:
            self._finish(cache, key, packing, code)
        else:
            finish = partial(copy_context().run, self._finish_later, cache, key, packing, code)
            threading.Thread(target=finish, name="weft cache").start()

    def improving(self, first: ModelCode, improve: Callable[[], ModelCode], *, is_kept: bool
                  ) -> Callable[[], ModelCode]:
        """``improve`` of the first code, which writes the entry; until then its files stay."""
        entry = copy(self)
        self._blocks = []

        def made() -> ModelCode:
            try:
                code = improve()
                code = replace(code, start=first.start, manifest=replace(
                    code.manifest, fallbacks=first.manifest.fallbacks))
                if is_kept:
                    entry.write(code)
                return code
            finally:
                entry.close()

        return made

    def close(self) -> None:
        """Remove the files of blocks that are not part of the entry; blocks refer to it."""
        for block in self._blocks:
            block.abandon()
        self._blocks.clear()

    def _finish_later(self, *arguments: Any) -> None:
        """``_finish`` in a thread that gives way to calls of the model."""
        with contextlib.suppress(AttributeError, OSError):  # other systems have no such threads
            thread = threading.get_native_id()
            niceness = os.getpriority(os.PRIO_PROCESS, thread)
            os.setpriority(os.PRIO_PROCESS, thread, niceness + _NICER)
        self._finish(*arguments)

    def _finish(self, cache: DiskCache, key: ModelKey, packing: Packing, code: ModelCode) -> None:
        entry = packing.entry
        if entry is None or not packing.finish_writing():
            return
        for part in code.to_parts()[1:]:
            entry.append(part)
        if cache.keep(entry):
            self._note(cache, key)

    def _note(self, cache: DiskCache, key: ModelKey) -> None:
        """Keep the parts of the key, and what warm starts need: the states of the files."""
        digest = key.digest
        if self._key_of_size is not None and cache.get(self._key_of_size) is None:
            cache.put(self._key_of_size, b"some")
        if digest.identity:
            cache.put(_key_of_parts(digest.identity), json.dumps(dict(key.parts)).encode())
        if self._remember is not None:
            self._remember(digest.files, key.text)


def _difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Which parts of a key changed; empty if none did."""
    changed = [f"{label} changed" if label in before else f"{label} is new"
               for label in now if now[label] != before.get(label)]
    changed += [f"{label} is gone" for label in before if label not in now]
    more = f"; and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
    return "; ".join(changed[:_NAMED]) + more


def _key_of_parts(identity: str) -> str:
    return hashlib.sha256(f"parts of {identity}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Pages:
    """The memory with the content of a file, from ``start`` to ``end``."""

    file: FileContent
    start: int
    end: int

    @staticmethod
    def of(file: FileContent | None) -> _Pages | None:
        """The memory of the file that is compiled."""
        data = None if file is None else file.content().data
        if file is None or data is None or not data.nbytes:
            return None
        start = address_of(np.frombuffer(data, np.uint8))
        return _Pages(file, start, start + data.nbytes)

    def keep_only(self, arrays: Sequence[np.ndarray]) -> None:
        """See ``SourceMemory``."""
        at = self.start
        for low, high in sorted(map(byte_bounds, arrays)):
            if self.start <= low < high <= self.end:
                self._drop(at, low)
                at = max(at, high)
        self._drop(at, self.end)

    def forget(self, array: np.ndarray) -> None:
        """See ``SourceMemory``."""
        low, high = byte_bounds(array)
        if self.start <= low < high <= self.end:
            self._drop(low, high)

    def _drop(self, low: int, high: int) -> None:
        if low < high:
            self.file.drop(low - self.start, high - self.start)
