"""What is known of a built kernel, and its form in caches.

Building one imports schedules and loops (``weft.compiler.build.kernel``), which a program whose
kernels are in the cache does not need.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict

from weft.compiler.build.callbacks import Callback
from weft.runtime.sizes import Size
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.log import Level, enabled


def shows_kernels() -> bool:
    """Whether the configuration asks for the stages of kernels; they are then always built here."""
    return config.dump_dir is not None or bool(config.explain) or enabled(Level.LLVM)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """The symbol, cost and memory needs of a kernel.

    ``in_place`` is the number of the input whose memory the result must share: the kernel reads
    the input from the memory of its result. ``None``: the result has its own memory. ``sizes`` are
    the values of its scalar parameters, which follow the buffers, over the program's symbols.
    ``seconds`` are predicted, and ``spent`` says on what; those of symbolic kernels are estimated
    for typical sizes (0: no estimate).
    """

    symbol: str
    implementation: str
    flops: Size
    bytes_moved: Size
    workspace_bytes: Size
    in_place: int | None = None
    sizes: tuple[Size, ...] = ()
    seconds: float = 0.0
    spent: str = ""


@dataclass(frozen=True, slots=True)
class BuiltKernel:
    """Facts and object code; ``callback`` is the Python function that the code calls, if any."""

    facts: KernelFacts
    object_code: bytes
    callback: Callback | None = None

    def to_bytes(self) -> bytes:
        """The form in which caches store a kernel and workers send it."""
        head = json.dumps(asdict(self.facts)).encode()
        return len(head).to_bytes(4, "little") + head + self.object_code

    @staticmethod
    def from_bytes(data: bytes | memoryview) -> BuiltKernel:
        size = int.from_bytes(data[:4], "little")
        head = json.loads(bytes(data[4 : 4 + size]))
        facts = dataclasses.replace(KernelFacts(**head), sizes=tuple(head["sizes"]))
        return BuiltKernel(facts, bytes(data[4 + size :]))
