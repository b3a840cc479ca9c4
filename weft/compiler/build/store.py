"""Filling the cache ahead of use, and writing a store: a folder of entries for other machines.

A store holds what the cache holds for the same models under the same keys: kernels and the objects
beside them, without the models themselves. Two stores of the same models, made by the same weft for
the same target, have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.compiler.build.cached_objects import support_objects
from weft.compiler.options import CompileOptions
from weft.compiler.program.build import code_of_source
from weft.compiler.program.constants import OwnBlock
from weft.frontend.source import ModelLike, open_source
from weft.support.cache import DiskCache, Store, recorded_keys
from weft.support.cache_entry import EntryWriter
from weft.support.errors import OptionError
from weft.support.fingerprint import compiler_digest
from weft.support.private_files import make_private
from weft.target import Target

# What ``level`` may be, and the CPU to compile for; ``None``: the host.
LEVELS: Mapping[str, str | None] = {
    "native": None, **{level: f"llvm -mcpu=x86-64-{level}" for level in ("v2", "v3", "v4")}}


def build_ahead(model: ModelLike, target: Target | str | None,
                inputs: Mapping[str, Any] | None = None) -> set[str]:
    """Build the kernels of a model into the cache; the keys of all that its compilation looks up.

    Raises what compiling the model raises.
    """
    compiler_digest()  # its own entry depends on times of files
    support_objects.cache_clear()  # what this process knows is looked up again
    with recorded_keys() as keys:
        options = CompileOptions.make(target=target, inputs=inputs)
        source = open_source(model, None, options)
        with source.held(), options.settings():
            code_of_source(source, options, lambda _: OwnBlock())
    return keys


def write_store(cache: DiskCache, keys: Iterable[str], folder: Path) -> tuple[int, int]:
    """Write the entries of these keys to a store that all users may read; their number and bytes.

    Raises ``OptionError`` if the folder cannot be written.
    """
    count = size = 0
    for key in sorted(keys):
        payload = cache.get(key)
        if payload is None:
            continue
        path = Store(folder).path(key)
        try:
            _write(path, payload)
        except OSError as error:
            raise OptionError("the store cannot be written", where=str(folder),
                              got=error.strerror or str(error)) from None
        count, size = count + 1, size + len(payload)
    return count, size


def _write(path: Path, payload: memoryview) -> None:
    """Write an entry, complete or not at all; an equal one is left as it is."""
    if Store(path.parents[1]).get(path.name) == payload:
        return
    make_private(path.parent)
    errors: list[OSError] = []
    writer = EntryWriter(path, errors.append)
    writer.append(payload)
    if not writer.finish():
        raise errors[0]
    path.chmod(0o644)
    for folder in path.parents[:2]:
        folder.chmod(0o755)
