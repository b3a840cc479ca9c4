"""The code of a model on its way to the disk cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.compiler.model_key import ModelKey
from weft.compiler.program.model_code import ModelCode
from weft.compiler.program.own_block import OwnBlock, byte_bounds
from weft.compiler.sources import Source
from weft.runtime.arena import address_of
from weft.support.cache import DiskCache
from weft.support.file_content import FileContent


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
        block = OwnBlock(new_entry, _forget_pages(self._model) if is_last else None)
        self._blocks.append(block)
        return block

    def keep(self, code: ModelCode) -> bool:
        """Write the rest of the code; ``False`` if it could not be written."""
        if self._cache is None or self._key is None:
            return False
        first, *rest = code.to_parts()
        for block in self._blocks:
            entry = block.entry_of(code.constants)
            if entry is not None:
                for part in rest:
                    entry.append(part)
                return self._cache.keep(entry)
        return self._cache.put(self._key.text, first, *rest)

    def close(self) -> None:
        """Remove what was begun and is not kept."""
        for block in self._blocks:
            block.abandon()


def _forget_pages(model: Source) -> Callable[[np.ndarray], None] | None:
    """A function that gives back the memory of weights of the file that is compiled."""
    if not isinstance(model, FileContent):
        return None
    file = model
    data = file.content().data
    if not data.nbytes:
        return None
    start = address_of(np.frombuffer(data, np.uint8))
    end = start + data.nbytes

    def forget(array: np.ndarray) -> None:
        low, high = byte_bounds(array)
        if start <= low < high <= end:
            file.drop(low - start, high - start)

    return forget
