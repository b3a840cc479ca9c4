"""Objects of a program beside its kernels, from the disk cache if they were built before.

The main function is looked up by the launches that it makes, the runtime support by the target:
both are known before any LLVM IR is written.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from weft.codegen.backend import Backend
from weft.codegen.launch import LaunchProgram
from weft.compiler.extensions import is_own
from weft.runtime.device import HOST
from weft.support.cache import open_cache
from weft.support.fingerprint import key_of
from weft.target import CpuTarget, Target


def main_object(backend: Backend[Any], launches: LaunchProgram, target: Target) -> bytes | None:
    """See ``Backend.build_main``."""

    def built() -> Iterator[bytes]:
        made = backend.build_main(launches, target)
        if made is not None:
            yield made

    parts = ("main", type(backend).__name__, str(target), repr(launches))
    return next(iter(_kept(backend, parts, built)), None)


def loop_object(backend: Backend[Any], symbol: str, launches: LaunchProgram, target: Target, *,
                has_workspace: bool) -> bytes:
    """See ``Backend.build_loop``."""
    parts = ("loop", type(backend).__name__, str(target), symbol, repr(launches))
    return _kept(backend, parts, lambda: [
        backend.build_loop(symbol, launches, target, has_workspace=has_workspace)])[0]


@functools.lru_cache(maxsize=8)
def support_objects(backend: Backend[Any], target: Target) -> tuple[bytes, ...]:
    """See ``Backend.support_objects``."""
    # That of a GPU contains code for the host; that of a CPU serves all hosts, by a store.
    host = "" if backend.device == HOST else str(CpuTarget.host())
    parts = ("support", type(backend).__name__, str(target), host)
    return _kept(backend, parts, lambda: backend.support_objects(target))


def _kept(backend: Backend[Any], parts: Sequence[str], build: Callable[[], Iterable[bytes]]
          ) -> tuple[bytes, ...]:
    """Objects that ``parts`` determine; those of a user's back end are built each time."""
    cache = open_cache() if is_own(backend) else None
    if cache is None:
        return tuple(build())
    key = key_of("objects", *parts)
    found = cache.get(key)
    if found is not None:
        return tuple(_objects_in(found))
    made = tuple(build())
    cache.put(key, b"".join(len(one).to_bytes(8, "little") + one for one in made))
    return made


def _objects_in(data: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "little")
        yield bytes(data[at + 8 : end])
        at = end
