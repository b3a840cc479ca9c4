"""The server process: a socket, uvicorn, and signals."""

from __future__ import annotations

import gc
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from weft.serving.app import make_app
from weft.serving.catalogue import Catalogue
from weft.serving.connections import Connections
from weft.serving.rate_limiter import RateLimiter
from weft.support.errors import OptionError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_BACKLOG = 1024  # connections that the system keeps until the server accepts them
_ACCEPTED = 16  # at a time; requests that are there go on between


def run_server(catalogue: Catalogue, host: str, port: int) -> None:
    """Serve until a signal comes; ``weft.serving.serve`` checks the packages first."""
    limits = catalogue.limits
    with listening(host, port) as listener, _quiet_signals():
        limiter = RateLimiter(limits.max_errors)
        config = uvicorn.Config(
            make_app(catalogue, limiter), access_log=False, ws="none",
            # On h11: the other parser of uvicorn, which it would prefer, bounds no head.
            http=Connections(limits.max_connections, limiter),
            log_level="error",  # warnings are about what clients do wrong
            proxy_headers=False,  # a client may write any address there
            backlog=_ACCEPTED,
            timeout_graceful_shutdown=max(1, round(limits.drain)))
        address, taken = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"serving {', '.join(catalogue.names)} on http://{shown}:{taken}",  # noqa: T201
              flush=True)
        with _settled_heap():
            _Server(config, limits.read_timeout).run(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that closes connections which begin no request in time.

    uvicorn bounds the time between two requests of a connection, but not that of a head that comes
    slowly, or of a connection that sends nothing.
    """

    def __init__(self, config: uvicorn.Config, patience: float) -> None:
        super().__init__(config)
        self._patience = patience
        self._idle_since: dict[Any, float] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # asyncio has told the system how many it takes at a time

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % 10 == 0:
            self._close_idle(time.monotonic())
        return await super().on_tick(counter)

    def _close_idle(self, now: float) -> None:
        idle = {connection for connection in self.server_state.connections
                if connection.cycle is None or connection.cycle.response_complete}
        self._idle_since = {c: self._idle_since.get(c, now) for c in idle}
        for connection, since in self._idle_since.items():
            if now - since > self._patience:
                connection.transport.close()


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; ``OptionError`` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # asyncio does it for sockets that it makes itself. Without, the body of a response waits
        # until the client has acknowledged the head: 40 ms.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        raise OptionError("cannot listen on this address", where=f"{host}:{port}", got=str(error),
                          help="choose another --port; 0 takes a free one") from None


@contextmanager
def _settled_heap() -> Iterator[None]:
    """Keep what is loaded by now out of collections of garbage.

    Every full one would hold up all requests for the time that it takes to visit the modules and
    the models: 50 ms on an idle machine, every second or two.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _quiet_signals() -> Iterator[None]:
    """Let the signals that stop a server end the call, not the process.

    uvicorn raises the signals again once it has stopped, for handlers that were set before.
    """
    before = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
