"""Addresses with too many requests in error wait for their turn."""

from __future__ import annotations

import asyncio
from functools import partial
from unittest.mock import Mock

import pytest

from weft.serving.rate_limiter import RateLimiter


def test_addresses_with_errors_are_blocked_while_there_are_many():
    now = [0.0]
    limiter = RateLimiter(10, clock=lambda: now[0])
    for number in range(15):
        limiter.error("abc"[number % 3])
    assert limiter.blocks("a")
    assert not limiter.blocks("d")
    now[0] = 0.6
    assert not limiter.blocks("a")
    for _ in range(7):
        limiter.error("d")
    assert limiter.blocks("a")


def test_errors_are_forgotten():
    now = [0.0]
    limiter = RateLimiter(10, clock=lambda: now[0])
    limiter.error("early")
    for _ in range(1000):
        limiter.error("many")
    now[0] = 8.9
    assert limiter.blocks("many")
    assert limiter.blocks("early")
    now[0] = 9.1
    assert not limiter.blocks("many")
    for number in range(4096):
        limiter.error(str(number))
    assert limiter.blocks("0")
    assert not limiter.blocks("many")
    now[0] = 19.2
    limiter.error("last")
    assert not limiter.blocks("0")


def test_addresses_take_turns():
    entered: list[str] = []

    async def run() -> None:
        limiter, end = RateLimiter(1000), asyncio.Event()
        waiting = {name: partial(entered.append, name) for name in ("a1", "a2", "a3", "b1", "b2")}
        for name, enter in waiting.items():
            limiter.wait(name[0], enter)
        limiter.wait("c", end.set)
        limiter.leave("a", waiting["a2"])
        assert (limiter.waiting, entered) == (5, [])
        limiter.wait("c", end.set)  # it waits already
        await end.wait()
        end.clear()
        limiter.wait("d", end.set)
        await end.wait()

    asyncio.run(run())
    assert entered == ["a1", "b1", "a3", "b2"]


@pytest.mark.parametrize("most", [1, 2])
def test_a_connection_that_is_refused_is_no_error_of_its_client(most):
    uvicorn = pytest.importorskip("uvicorn")
    from uvicorn.server import ServerState

    from weft.serving.connections import Connections

    async def run() -> None:
        limiter = RateLimiter(1)
        for _ in range(5):
            limiter.error("127.0.0.2")
        connections = Connections(most, limiter)
        config = uvicorn.Config(lambda *_: None, http=connections)
        config.load()
        made = [connections(config=config, server_state=ServerState(), app_state={})
                for _ in range(2)]
        for connection, address in zip(made, ("127.0.0.3", "127.0.0.4"), strict=True):
            transport = Mock()
            transport.get_extra_info = {"peername": (address, 1)}.get
            connection.connection_made(transport)
            connection.cycle = made[0].cycle = Mock(response_complete=False)
        made[1].cycle = None  # has sent nothing
        made[1].connection_lost(None)
        assert limiter.blocks("127.0.0.4") == (most == 2)

    asyncio.run(run())
