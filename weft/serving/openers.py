"""``Openers``: models for a server, in its own process or in replicas."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from weft.serving.replicas import Replicas
from weft.serving.tensor_model import TensorModule
from weft.serving.text_model import TextModel


class Openers:
    """Opens models; without ``replicas`` this process computes."""

    def __init__(self, replicas: int, threads: int | None, timeout: float) -> None:
        self._stack = ExitStack()
        self.replicas = None if not replicas else self._stack.enter_context(
            Replicas(replicas, threads=threads, timeout=timeout))

    def module(self, path: str, module: TensorModule) -> TensorModule:
        """A module that came of a path."""
        return module if self.replicas is None else self.replicas.module(path, module)

    def text(self, path: str, *, capacity: int | None, slots: int, adapters: tuple[str, ...],
             caches: tuple[str, ...]) -> TextModel:
        """The language model of a path."""
        if self.replicas is None:
            from weft.serving.language_text import open_language_model

            return open_language_model(path, capacity=capacity, slots=slots, adapters=adapters,
                                       caches=caches)
        from weft.serving.replica_text import open_replicated_text
        from weft.serving.replica_worker import TextSource

        return open_replicated_text(self.replicas, TextSource(path, capacity, slots, adapters,
                                                               caches))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stack.close()
