"""The error that emulated kernels raise."""

from __future__ import annotations

from typing import ClassVar

from weft.support.errors import WeftError


class CudaEmulationError(WeftError):
    """PTX that cannot be read, or a kernel that misbehaved: out of bounds, race, deadlock, ...

    ``where`` names the kernel, the source line (``.loc``), the line of the PTX text, the block and
    the thread, as far as they are known.
    """

    code: ClassVar[str] = "E0904"
