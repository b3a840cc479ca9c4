"""The child process that builds kernels, started by ``worker_pool``.

Reads (name, function, target, configuration, whether to time stages) frames from standard input and
answers each with the built kernel or the error, and the times. It exits at the end of its input.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import nullcontext

import weft.op  # noqa: F401 - functions refer to operators by name
from weft.compiler.build.kernel import build_kernel
from weft.compiler.build.worker_pool import read_frame, write_frame
from weft.support.config import config
from weft.support.errors import InternalError, WeftError
from weft.support.stage_times import StageTime, collected


def main() -> None:
    """Answer requests until the pipe is closed."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the answers
    requests = sys.stdin.buffer
    while True:
        try:
            name, function, target, overrides, is_timed = read_frame(requests)
        except EOFError:
            return
        times: Mapping[str, StageTime] = {}
        with config(**overrides):
            try:
                with collected() if is_timed else nullcontext() as collector:
                    answer: object = build_kernel(name, function, target).to_bytes()
                times = {} if collector is None else collector.stages
            except WeftError as error:
                answer = error
            except Exception as error:  # noqa: BLE001 - the parent raises it
                answer = InternalError(f"building the kernel {name} failed",
                                       got=f"{type(error).__name__}: {error}")
        write_frame(answers, (answer, times))


if __name__ == "__main__":
    main()
