"""The interface through which models report their work."""

from __future__ import annotations


class Observer:
    """Ignores everything; ``weft.serving.metrics`` counts it."""

    def batch(self, model: str, requests: int, rows: int) -> None:
        """A batch of so many requests and rows has started."""

    def waited(self, model: str, seconds: float) -> None:
        """A request left the queue after so many seconds."""

    def first_token(self, model: str, seconds: float) -> None:
        """A language model gave the first token of a request after so many seconds."""

    def tokens(self, model: str, prompt: int, generated: int) -> None:
        """A language model has finished a request."""


SILENT = Observer()
