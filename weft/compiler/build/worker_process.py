"""Processes that build kernels: how they start, and one that starts before it is needed.

A process needs as long to import the compiler as its parent. In a program that compiles its first
model both can do it at the same time. This module imports nothing of the compiler.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from weft.support.interpreter import import_path, interrupts_blocked

if TYPE_CHECKING:
    import subprocess

_spare: list[subprocess.Popen[bytes]] = []


def start_process() -> subprocess.Popen[bytes]:
    """A process that builds kernels, the spare one if there is one (``worker.main``)."""
    while _spare:
        process = _spare.pop()
        if process.poll() is None:
            return process
    return _started()


def start_spare() -> None:
    """Start a process for the next caller of ``start_process``; no effect if that fails."""
    if not _spare:
        try:
            _spare.append(_started())
        except OSError:  # too many processes; the compilation goes on without it
            return


def has_spare() -> bool:
    """Whether a spare process waits."""
    return bool(_spare)


def stop_spare() -> None:
    """End the spare process."""
    while _spare:
        process = _spare.pop()
        process.kill()
        process.communicate()


def _started() -> subprocess.Popen[bytes]:
    import subprocess  # a model whose kernels are cached needs no process

    # The child has the import path of this process. Without -P its path would start with the
    # current folder, whose files may be named like modules of the standard library. Little of what
    # it makes is in cycles, and it ends soon, so it does not collect garbage.
    code = (f"import gc, sys; gc.disable(); sys.path[:] = {import_path()!r}; "
            "from weft.compiler.build.worker import main; main()")
    with interrupts_blocked():  # the parent handles Ctrl-C
        return subprocess.Popen([sys.executable, "-P", "-c", code],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
