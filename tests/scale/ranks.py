"""Starts ranks on loopback, and collects what they print."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("PMI_", "OMPI_", "WEFT_TEST")) and k not in ("RANK", "WORLD_SIZE")}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
            "OMP_NUM_THREADS": "1"}


def start(count: int, code: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """A process per rank with torchrun's environment, each of which runs ``code``."""
    port = str(free_port())
    return [subprocess.Popen(
        [sys.executable, "-c", code, *arguments], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, cwd=ROOT,
        env={**environment(), "RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(count),
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}) for r in range(count)]


def finish(processes: Sequence[subprocess.Popen[str]], timeout: float = 120
           ) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of each process; all are dead afterwards."""
    try:
        found = []
        for process in processes:
            out, err = process.communicate(timeout=timeout)
            found.append((process.returncode, out, err))
        return found
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def mpiexec(count: int, code: str) -> subprocess.CompletedProcess[str]:
    beside = Path(sys.executable).with_name("mpiexec")
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    assert program, "install weft[mpi]"
    return subprocess.run([program, "-n", str(count), sys.executable, "-c", code], text=True,
                          check=False, capture_output=True, timeout=120, cwd=ROOT,
                          env=environment())
