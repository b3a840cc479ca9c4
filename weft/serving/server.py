"""The server process: a socket, uvicorn, and signals."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from weft.serving.app import make_app
from weft.serving.catalogue import Catalogue
from weft.support.errors import OptionError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run_server(catalogue: Catalogue, host: str, port: int) -> None:
    """Serve until a signal comes; ``weft.serving.serve`` checks the packages first."""
    limits = catalogue.limits
    with _listening(host, port) as listener, _quiet_signals():
        config = uvicorn.Config(
            make_app(catalogue), log_level="warning", access_log=False, ws="none",
            limit_concurrency=limits.max_connections,
            timeout_graceful_shutdown=max(1, round(limits.drain)))
        address, taken = listener.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"serving {', '.join(catalogue.names)} on http://{shown}:{taken}",  # noqa: T201
              flush=True)
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise OptionError("cannot listen on this address", where=f"{host}:{port}", got=str(error),
                          help="choose another --port; 0 takes a free one") from None


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
