"""The parent's side of a child process that builds kernels."""

from __future__ import annotations

import contextlib
import pickle
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

from weft.compiler.build.built_kernel import BuiltKernel
from weft.compiler.build.worker_process import start_process
from weft.compiler.program.program import KernelSource
from weft.support.config import config
from weft.support.errors import InternalError, WeftError
from weft.support.stage_times import collector
from weft.target import Target

if TYPE_CHECKING:
    import subprocess


def write_frame(stream: IO[bytes], value: Any) -> None:
    """Write the length of a pickled value, then the value."""
    data = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(len(data).to_bytes(8, "little") + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> Any:
    """Read the next value; ``EOFError`` at the end of the stream."""
    head = stream.read(8)
    size = int.from_bytes(head, "little")
    data = stream.read(size) if len(head) == 8 else b""
    if len(head) < 8 or len(data) < size:
        raise EOFError
    return pickle.loads(data)  # noqa: S301 - from our own child, over our own pipe


class Worker:
    """A child process; starts with its first kernel, exits at the end of the ``with`` block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return
        import subprocess  # a process runs, so it is imported

        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()  # the worker exits at the end of its input
        process.stdout.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill the process; a thread in ``build`` raises ``InternalError``."""
        self._killed = True  # also if another thread is about to start the process
        if self._process is not None:
            self._process.kill()

    def build(self, kernel: KernelSource, target: Target) -> BuiltKernel:
        """Build one kernel; raises what the worker raised, ``InternalError`` if it died."""
        process = self._process or self._start()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise InternalError("a build worker lacks its pipes")
        try:
            times = collector()
            write_frame(stdin, (kernel.name, kernel.function, target, config.overrides(),
                                times is not None))
            answer, spent = read_frame(stdout)
        except (EOFError, OSError):
            code = process.wait()
            raise InternalError(
                f"the process that built the kernel {kernel.name} died",
                where=kernel.text, got=f"exit status {code}",
                help="WEFT_BUILD_JOBS=1 builds in one process; report this with the model",
            ) from None
        if times is not None:
            times.merge(spent)
        if isinstance(answer, WeftError):
            raise answer
        return BuiltKernel.from_bytes(answer)

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = start_process()
        if self._killed:
            self._process.kill()
        return self._process
