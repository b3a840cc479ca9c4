"""Small models with the interfaces that servers use, and a client that may misbehave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import numpy as np

from tests.unit.generation.tiny_decoder import TinyDecoder
from weft.runtime.manifest import TensorSpec
from weft.support.errors import InvalidInputError


class Rows:
    """y = 2 x + the sum of the row, for any number of rows; ``sizes`` are those of the calls.

    While ``gate`` is closed, a call waits.
    """

    def __init__(self, width: int | str = 3, *, first: int | str = "n") -> None:
        self.inputs = (TensorSpec("x", "float32", (first, width)),)
        self.outputs = (TensorSpec("y", "float32", (first, width)),)
        self.sizes: list[tuple[int, ...]] = []
        self.gate = threading.Event()
        self.gate.set()

    def run(self, names, feeds) -> list[np.ndarray]:
        assert self.gate.wait(20)
        x = feeds["x"]
        self.sizes.append(x.shape)
        if (x == -13).any():
            raise InvalidInputError("-13 is unlucky")
        return [2 * x + x.sum(axis=-1, keepdims=True)]


class TinyText:
    """A language model whose tokens are code points."""

    def __init__(self, *, end_tokens: Sequence[int] = (), **options) -> None:
        self.decoder = TinyDecoder(vocab_size=128, **options)
        self.end_tokens = end_tokens

    def encode(self, text: str) -> list[int]:
        return [ord(c) % 128 for c in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def constraint(self, json_schema):
        raise InvalidInputError("tokens of one letter have no form", got=json_schema)

    def chat_prompt(self, messages) -> list[int]:
        return self.encode("".join(f"{m['role'][0]}:{m['content']}\n" for m in messages))


class Connection:
    """One POST request, spoken to an ASGI application without a server.

    ``chunks`` come ``pause`` seconds apart; ``leave_after`` closes the connection after so many
    messages of the response, or ``leave`` at once when it is set.
    """

    def __init__(self, path: str, chunks: Sequence[bytes], *, headers: dict[str, str] | None = None,
                 pause: float = 0.0, leave_after: int | None = None) -> None:
        self.path = path
        self.headers = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
        self.chunks = list(chunks)
        self.pause = pause
        self.leave_after = leave_after
        self.leave = asyncio.Event()
        self.messages: list[dict] = []

    async def receive(self) -> dict:
        if self.chunks:
            await asyncio.sleep(self.pause)
            body = self.chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.chunks)}
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict) -> None:
        self.messages.append(message)
        if len(self.messages) == self.leave_after:
            self.leave.set()

    async def to(self, app) -> None:
        scope = {"type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
                 "http_version": "1.1", "method": "POST", "scheme": "http", "path": self.path,
                 "raw_path": self.path.encode(), "query_string": b"", "root_path": "",
                 "headers": self.headers, "client": ("test", 1), "server": ("test", 80)}
        await app(scope, self.receive, self.send)

    @property
    def status(self) -> int | None:
        return self.messages[0]["status"] if self.messages else None

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.messages)
