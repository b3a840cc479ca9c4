"""``Admission``: the middleware that bounds how many requests a server holds, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weft.serving.limits import Limits
from weft.serving.metrics import Metrics
from weft.serving.rate_limiter import RateLimiter
from weft.serving.refusal import RefusedError, overloaded
from weft.serving.responses import error_response

_TICKET = "weft.ticket"
TOO_MANY = 429  # the fault of all clients together
CLIENT_GONE = 499  # as nginx counts requests whose client did not wait for the response


class Ticket:
    """A request in flight. ``cleanup`` runs when its response has ended, whatever ended it."""

    def __init__(self, admission: Admission) -> None:
        self.cleanup = ExitStack()
        self._admission = admission
        self._held = 0

    @property
    def held_by_all(self) -> int:
        """Bytes of the bodies of all requests in flight."""
        return self._admission.held

    def hold(self, count: int) -> None:
        """Account for ``count`` more bytes of the body."""
        self._admission.held += count
        self._held += count

    def release(self) -> None:
        self._admission.held -= self._held
        self.cleanup.close()


class Admission:
    """Refuses what exceeds the limits, ends requests that take too long, and counts them all.

    GET requests (metadata, health, metrics) are always admitted: an overloaded server still tells
    that it is alive.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, metrics: Metrics, limiter: RateLimiter
                 ) -> None:
        self.app = app
        self.limiter = limiter
        self.limits = limits
        self.metrics = metrics
        self.in_flight = 0
        self.held = 0
        metrics.in_flight.set_function(lambda: self.in_flight)
        metrics.held.set_function(lambda: self.held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500
        begun = False

        async def watched(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message = self._counted(scope, message)
            await send(message)

        try:
            await self._admit(scope, receive, watched)
        except TimeoutError as error:
            if begun:  # a stream; the connection is closed before its end
                raise
            await error_response(scope["path"], error)(scope, receive, watched)
        except ClientDisconnect:
            status = CLIENT_GONE
            self._counted(scope, {"status": status})
        finally:
            self.metrics.request(_route(scope), status, time.perf_counter() - start)

    def _counted(self, scope: Scope, message: Message) -> Message:
        """The start of a response, which ends the connection of a client with too many errors."""
        if not 400 <= message["status"] < 500 or message["status"] == TOO_MANY:
            return message
        address = (scope.get("client") or ("",))[0]
        self.limiter.error(address)
        if not self.limiter.blocks(address):
            return message
        return {**message, "headers": [*message.get("headers", ()), (b"connection", b"close")]}

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        if self.in_flight >= self.limits.max_concurrency:
            refusal = overloaded(f"{self.in_flight} requests in flight")
            await error_response(scope["path"], refusal)(scope, receive, send)
            return
        ticket = Ticket(self)
        self.in_flight += 1
        try:
            scope[_TICKET] = ticket
            async with asyncio.timeout(self.limits.timeout):
                await self.app(scope, receive, send)
        finally:
            self.in_flight -= 1
            ticket.release()


def _route(scope: Scope) -> str:
    """The pattern of the route, since paths would make metrics without end."""
    route = scope.get("route")
    return getattr(route, "path", "unknown")


def ticket_of(request: Request) -> Ticket:
    """The ticket of a POST request."""
    ticket: Ticket = request.scope[_TICKET]
    return ticket


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request, within the limits; ``RefusedError`` beyond them."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RefusedError("the body is compressed", status=415,
                           got=request.headers["content-encoding"],
                           help="send it without Content-Encoding")
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.max_body:
        raise _too_large(limits)
    ticket, body = ticket_of(request), bytearray()
    try:
        async with asyncio.timeout(limits.read_timeout):
            async for chunk in request.stream():
                _make_room(ticket, len(body) + len(chunk), len(chunk), limits)
                body += chunk
    except TimeoutError:
        raise RefusedError("the body did not arrive in time", status=408,
                           expected=f"all of it within {limits.read_timeout:g} seconds",
                           got=f"{len(body)} bytes") from None
    return bytes(body)


def _make_room(ticket: Ticket, size: int, more: int, limits: Limits) -> None:
    if size > limits.max_body:
        raise _too_large(limits)
    if ticket.held_by_all + more > limits.max_held:
        raise overloaded(f"{ticket.held_by_all} bytes of requests in flight")
    ticket.hold(more)


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError("the body is too large", status=413,
                        expected=f"at most {limits.max_body} bytes")


async def while_connected(request: Request, work: Awaitable[Any]) -> Any:
    """The result of ``work``, which is cancelled if the client closes the connection.

    The body was read: the next message of the connection is its end.
    """
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_closed(request.receive))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(watch, task, return_exceptions=True)


async def _closed(receive: Callable[[], Awaitable[Message]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
