"""The code of a model: what a compilation makes, the disk cache keeps, and an executable runs.

This module imports the runtime alone, so that a model whose code is in the cache starts without
what makes code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.compiler.build.callbacks import Callback
from weft.runtime.arena import aligned_bytes
from weft.runtime.artifact_format import payload_parts, read_payload
from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError


@dataclass(frozen=True, slots=True)
class ModelCode:
    """``objects`` link into one library; ``constants`` is one block, aligned to 64 bytes.

    Code with ``callbacks`` calls Python functions, and so is valid in this process only, as is code
    that refers to memory outside of the block, ``kept``. ``start`` says whether it came from the
    disk cache, and if not, why. Code of the tier "fast" has ``improve``, which makes the code that
    calls fastest, with the same constants.
    """

    manifest: Manifest
    objects: tuple[bytes, ...]
    constants: np.ndarray
    callbacks: tuple[Callback, ...] = ()
    kept: tuple[np.ndarray, ...] = ()
    start: str = ""
    improve: Callable[[], ModelCode] | None = None

    def check_portable(self) -> None:
        """Raise ``ArtifactError`` for code that is valid in this process only."""
        if self.callbacks:
            raise ArtifactError(
                "the model calls Python functions, which cannot be exported",
                got=", ".join(callback.name for callback in self.callbacks),
                help="give operators of torch.library a converter (weft.torch_converter), and "
                     "compile without an external code generator that gives PythonCode",
            )

    def to_parts(self) -> list[bytes | memoryview]:
        """The payload of the cache (``weft.runtime.artifact_format``)."""
        return payload_parts(self.manifest, self.constants, self.objects)

    @staticmethod
    def from_payload(payload: memoryview) -> ModelCode:
        """Read back; the constants are a view of the payload if it is aligned."""
        read = read_payload(payload)
        constants = aligned_bytes(read.constants)
        constants.flags.writeable = False
        return ModelCode(read.manifest, tuple(map(bytes, read.objects)), constants)


@dataclass(frozen=True, slots=True)
class PerShape:
    """The signature of a model that is compiled for each set of input shapes, and why.

    ``start`` says why no code came from the cache.
    """

    manifest: Manifest
    reason: str
    start: str = ""
