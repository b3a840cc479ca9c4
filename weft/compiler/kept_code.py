"""The code of a model on its way to the disk cache."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial

import numpy as np

from weft.compiler.model_key import ModelKey
from weft.compiler.program.model_code import ModelCode
from weft.compiler.program.own_block import OwnBlock
from weft.compiler.program.packing import Packing, byte_bounds
from weft.compiler.sources import Source
from weft.runtime.arena import address_of
from weft.support.cache import DiskCache
from weft.support.dataclass import dataclass
from weft.support.file_content import FileContent

# Writing this many bytes takes longer than what is left to do after they are packed.
_SLOW_BYTES = 16 << 20


class KeptCode:
    """The entry that the code of a model shall have; its constants are written first.

    ``cache`` and ``key`` are ``None`` for code that is not kept.
    """

    def __init__(self, model: Source, cache: DiskCache | None, key: ModelKey | None) -> None:
        self._model = model
        self._cache = cache
        self._key = key
        self._blocks: list[OwnBlock] = []

    def block(self, *, is_last: bool) -> OwnBlock:
        """Memory for constants.

        With ``is_last`` the module with the constants is not compiled in another way if this fails,
        so memory with the content of the model's file is given back as it is packed.
        """
        cache, key = self._cache, self._key
        new_entry = None if cache is None or key is None else \
            lambda size: cache.writer(key.text, size)
        block = OwnBlock(new_entry, _Pages.of(self._model) if is_last else None)
        self._blocks.append(block)
        return block

    def keep(self, code: ModelCode, then: Callable[[], None]) -> None:
        """Write the rest of the code, and call ``then`` if all of it could be written.

        Large constants are still on their way to the disk. Their entry is finished by a thread,
        which the interpreter waits for before it exits.
        """
        if self._cache is None or self._key is None:
            return
        packing = next((found for block in self._blocks
                        if (found := block.packing_of(code.constants)) is not None), None)
        if packing is None:
            if self._cache.put(self._key.text, *code.to_parts()):
                then()
            return
        self._blocks.clear()  # nothing is left for ``close`` to remove
        finish = partial(copy_context().run, _finish, self._cache, packing, code, then)
        if code.constants.nbytes < _SLOW_BYTES:
            finish()
        else:
            threading.Thread(target=finish, name="weft cache").start()

    def close(self) -> None:
        """Remove what was begun and is not kept."""
        for block in self._blocks:
            block.abandon()


def _finish(cache: DiskCache, packing: Packing, code: ModelCode, then: Callable[[], None]) -> None:
    packing.finish_writing()
    entry = packing.entry
    if entry is None:
        return
    for part in code.to_parts()[1:]:
        entry.append(part)
    if cache.keep(entry):
        then()


@dataclass(frozen=True, slots=True)
class _Pages:
    """The memory with the content of a file, from ``start`` to ``end``."""

    file: FileContent
    start: int
    end: int

    @staticmethod
    def of(model: Source) -> _Pages | None:
        """The memory of the file that is compiled."""
        if not isinstance(model, FileContent):
            return None
        data = model.content().data
        if not data.nbytes:
            return None
        start = address_of(np.frombuffer(data, np.uint8))
        return _Pages(model, start, start + data.nbytes)

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
