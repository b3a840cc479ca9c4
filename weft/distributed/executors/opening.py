"""Executors by name, as command lines and ``executor=`` take them."""

from __future__ import annotations

from weft.distributed.executors.dask_executor import Dask
from weft.runtime.executors import Executor, Inline, Processes
from weft.support.errors import OptionError

_EXPECTED = "inline, processes, processes:N, dask, dask:N, an address, or an executor"


def open_executor(executor: Executor | str, *, allowed_failures: int = 0) -> Executor:
    """The executor of a name, or the given one.

    Names are ``inline``, ``processes`` and ``dask`` for workers of this machine (``processes:4``,
    ``dask:4`` for so many), and addresses of Dask's schedulers, such as ``tcp://10.0.0.1:8786``.
    A call whose worker is lost runs again ``allowed_failures`` times. Raises ``OptionError`` for
    another name, ``WorkerError`` for an address that does not answer.
    """
    if isinstance(executor, Executor):
        return executor
    if not isinstance(executor, str):
        raise OptionError("not an executor", got=repr(executor), expected=_EXPECTED)
    kind, _, number = executor.partition(":")
    if kind == "inline" and not number:
        return Inline()
    if kind in ("processes", "dask") and (not number or number.isdecimal()):
        make = Processes if kind == "processes" else Dask
        return make(workers=int(number) if number else None, allowed_failures=allowed_failures)
    if kind != "inline" and number.rpartition(":")[2].isdecimal():
        return Dask(executor)
    raise OptionError(f"unknown executor {executor!r}", expected=_EXPECTED)
