"""``Inline``: calls run in the caller's thread, one after another."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from weft.runtime.executors.base import Call, Executor, Shared, Worker

_NAME = "inline"


class Inline(Executor):
    """Runs a call before ``run`` returns, without its timeout: nothing here could end it."""

    def run(self, call: Call) -> Future[Any]:
        """See ``Executor.run``."""
        call.check(self.workers())
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            args = [arg.value() if isinstance(arg, Shared) else arg for arg in call.args]
            future.set_result(call.function(*args, **call.kwargs))
        except Exception as error:  # noqa: BLE001 - a future keeps the error of its call
            future.set_exception(error)
        return future

    def workers(self) -> tuple[Worker, ...]:
        """See ``Executor.workers``."""
        return (Worker.here(_NAME),)

    def cancel(self, futures: Iterable[Future[Any]]) -> None:
        """No effect: all calls have ended."""
