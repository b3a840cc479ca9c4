"""``python -m weft.distributed.run -n 4 script.py``: start ranks on this machine.

Each rank is a process with torchrun's environment (``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR``, ...),
and each of its lines is printed behind its number. When one fails, all end, and the launcher says
which it was and what its last error was.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import TextIO

import click

from weft.runtime.devices.cpu.threads import usable_cpus

_LAST_LINES = 40
_END_WITHIN = 5.0  # seconds after which a rank that was told to end is killed


class _Rank:
    """A process, and the threads that print what it writes."""

    def __init__(self, number: int, command: Sequence[str], environment: dict[str, str]) -> None:
        self.number = number
        self.errors: deque[str] = deque(maxlen=_LAST_LINES)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env=environment | {"RANK": str(number), "LOCAL_RANK": str(number)})
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._threads = [
            threading.Thread(target=self._print, args=(self.process.stdout, sys.stdout, None)),
            threading.Thread(target=self._print, args=(self.process.stderr, sys.stderr,
                                                       self.errors))]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    def _print(self, lines: TextIO, to: TextIO, kept: deque[str] | None) -> None:
        for line in lines:
            to.write(f"[{self.number}] {line.rstrip()}\n")
            to.flush()
            if kept is not None and line.strip():
                kept.append(line.rstrip())

    def printed(self) -> None:
        """Wait until all lines of a process that ended are printed."""
        for thread in self._threads:
            thread.join(1)

    def report(self) -> str:
        """Why the process ended, with its last error."""
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"
        said = next((line for line in reversed(self.errors) if line[:1].strip()), None)
        return f"rank {self.number} {how}" + (f": {said}" if said else "")


def launch(count: int, command: Sequence[str]) -> int:
    """Run ``command`` in ``count`` processes; the exit code of the first that failed, or 0."""
    environment = {
        "OMP_NUM_THREADS": str(max(1, usable_cpus() // count)), **os.environ,
        "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()), "PYTHONUNBUFFERED": "1"}
    ranks = [_Rank(number, command, environment) for number in range(count)]
    try:
        failed = _first_failure(ranks)
    finally:
        _end(ranks)
        for rank in ranks:
            rank.printed()
    if failed is None:
        return 0
    sys.stderr.write(f"{failed.report()}\n")
    code = failed.process.returncode
    return int(code) if code > 0 else 128 - int(code)


def _first_failure(ranks: Sequence[_Rank]) -> _Rank | None:
    """The first rank that fails, or ``None`` when all have ended."""
    while True:
        codes = [rank.process.poll() for rank in ranks]
        for rank, code in zip(ranks, codes, strict=True):
            if code:
                return rank
        if all(code == 0 for code in codes):
            return None
        time.sleep(0.05)


def _end(ranks: Sequence[_Rank]) -> None:
    """End the processes that run: first by a request, then without."""
    running = [rank.process for rank in ranks if rank.process.poll() is None]
    for process in running:
        process.terminate()
    limit = time.monotonic() + _END_WITHIN
    for process in running:
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@click.command(context_settings={"ignore_unknown_options": True,
                                 "allow_interspersed_args": False})
@click.option("-n", "count", type=click.IntRange(1, 1024), required=True, help="how many ranks")
@click.option("-m", "module", is_flag=True, help="SCRIPT is the name of a module")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(count: int, module: bool, script: str, arguments: tuple[str, ...]) -> None:
    """Start COUNT ranks of SCRIPT on this machine; end all when one fails."""
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    command = [sys.executable, *(["-m"] if module else []), script, *arguments]
    try:
        code = launch(count, command)
    except KeyboardInterrupt:
        code = 130
    raise SystemExit(code)


if __name__ == "__main__":
    main()
