"""Texts that end a generation, found in a stream of chunks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from weft.support.errors import OptionError


def as_stop_texts(stop: str | Iterable[str]) -> tuple[str, ...]:
    """The texts of the option ``stop``; ``OptionError`` for an empty one or for other values."""
    found = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(text, str) and text for text in found):
        raise OptionError("an invalid text in stop", expected="texts of at least one character",
                          got=found)
    return found


def until_stop(chunks: Iterable[str], stop: Sequence[str]) -> Iterator[str]:
    """The chunks before the first of the texts ``stop``; what may begin one is held back."""
    held = ""
    for chunk in chunks:
        held += chunk
        places = [at for at in (held.find(text) for text in stop) if at >= 0]
        if places:
            if first := held[:min(places)]:
                yield first
            return
        keep = max((_overlap(held, text) for text in stop), default=0)
        if ready := held[:len(held) - keep]:
            yield ready
        held = held[len(held) - keep:]
    if held:
        yield held


def _overlap(text: str, stop: str) -> int:
    """The length of the longest end of ``text`` that begins ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1)
                 if text.endswith(stop[:n])), 0)
