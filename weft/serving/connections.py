"""``Connections``: which connections a server keeps, and when it reads from them."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from weft.serving.rate_limiter import RateLimiter
from weft.serving.refusal import OVERLOADED

_BODY = json.dumps({"error": f"{OVERLOADED}; got too many connections"}).encode()
_FULL = (b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\n"
         b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY))


class Connections:
    """The open connections by the address of their client, up to ``most`` of all.

    Where they are that many, the server closes one of the address with most connections to accept
    a new one: the oldest that has not sent a request yet, or waits for the next one. If there is
    none, the new one is refused before anything of it is read.
    """

    def __init__(self, most: int, limiter: RateLimiter) -> None:
        self.limiter = limiter
        self.count = 0
        self._most = most
        self._open: dict[str, dict[Connection, None]] = {}

    def __call__(self, **options: Any) -> Connection:
        """A protocol for uvicorn."""
        return Connection(self, **options)

    def add(self, connection: Connection) -> bool:
        """Keep a connection if there is room for it."""
        if self.count >= self._most and not self._make_room(connection.address):
            return False
        self._open.setdefault(connection.address, {})[connection] = None
        self.count += 1
        return True

    def discard(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        of_address = self._open.get(connection.address, {})
        if connection in of_address:
            del of_address[connection]
            self.count -= 1
            if not of_address:
                del self._open[connection.address]

    def _make_room(self, address: str) -> bool:
        busiest = max(self._open, key=lambda other: len(self._open[other]))
        own = busiest == address
        for connection in self._open[busiest]:
            if connection.cycle is None or (not own and connection.cycle.response_complete):
                connection.transport.abort()
                self.discard(connection)
                return True
        return False


class Connection(H11Protocol):
    """uvicorn's HTTP for one connection, which is not read while the limiter delays it."""

    def __init__(self, connections: Connections, **options: Any) -> None:
        super().__init__(**options)
        self.address = ""
        self._is_refused = False
        self._all = connections

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self._is_refused = not self._all.add(self)
        if self._is_refused:
            transport.write(_FULL)
            transport.close()
        elif self._all.limiter.blocks(self.address):
            transport.pause_reading()
            self._all.limiter.wait(self.address, self._enter)

    def _enter(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.cycle is None and not self._is_refused:  # it sent no request
            self._all.limiter.error(self.address)
        self._all.discard(self)
        self._all.limiter.leave(self.address, self._enter)
        super().connection_lost(exc)
