"""The functions that replicas run; each process loads a model at its first call, and keeps it."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import weft
from weft.serving.tensor_model import TensorModule
from weft.support.dataclass import dataclass

_EPOCH = secrets.token_hex(8)  # of this process, whose caches end with it


@functools.cache
def _module(path: str) -> TensorModule:
    return weft.load(path)


def load(path: str) -> None:
    """Load an artifact, so that no request waits for it."""
    _module(path)


def run(path: str, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of the module in an artifact."""
    return [np.asarray(array) for array in _module(path).run(None, feeds)]


@dataclass(frozen=True)
class TextSource:
    """The arguments of ``open_language_model``."""

    path: str
    capacity: int | None
    slots: int
    adapters: tuple[str, ...] = ()
    caches: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class TextFacts:
    """The sizes of a decoder, and the prompts that its first slots hold."""

    vocab_size: int
    capacity: int
    slots: int
    cached_prompts: tuple[np.ndarray, ...]


@functools.cache
def _text(source: TextSource) -> Any:
    from weft.serving.language_text import open_language_model

    return open_language_model(source.path, capacity=source.capacity, slots=source.slots,
                               adapters=source.adapters, caches=source.caches)


def open_text(source: TextSource) -> tuple[str, TextFacts]:
    """Load a language model; the epoch of the process, and what the decoder has."""
    text = _text(source)
    decoder = text.decoder
    return _EPOCH, TextFacts(decoder.vocab_size, decoder.capacity, decoder.slots,
                             text.cached_prompts)


def call_text(source: TextSource, epoch: str, method: str, args: tuple[Any, ...]
              ) -> tuple[bool, Any]:
    """The result of a method of the decoder, unless the caller knows an earlier process."""
    if epoch != _EPOCH:
        return False, None
    return True, getattr(_text(source).decoder, method)(*args)


def refill_text(source: TextSource, slots: Sequence[int], tokens: Sequence[np.ndarray]) -> str:
    """Let the caches hold these tokens and no others; the epoch of the process."""
    decoder = _text(source).decoder
    for slot in range(decoder.slots):
        decoder.free(slot)
    if slots:
        decoder.prefill(slots, tokens)
    return _EPOCH
