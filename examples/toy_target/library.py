"""``ToyLibrary``: the section of an artifact, and the kernels in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.runtime.arena import array_at
from weft.runtime.device import HOST, Device
from weft.runtime.library import HostLibrary
from weft.support.errors import ArtifactError
from weft.tir.eval import evaluator_of
from weft.tir.parser import parse_func

from .memory import MEMORY, ToyBlock

HEADER = b"toy kernels 1\n"


def section(objects: Sequence[bytes]) -> bytes:
    """The section of an artifact: a header, then the texts of the kernels between zero bytes."""
    return HEADER + b"\0".join(objects)


class ToyLibrary(HostLibrary):
    """The loaded section. Raises ``ArtifactError`` for bytes that are not one."""

    def __init__(self, code: bytes | memoryview) -> None:
        header, texts = bytes(code[:len(HEADER)]), bytes(code[len(HEADER):])
        if header != HEADER:
            raise ArtifactError("not kernels for the toy device", expected=HEADER, got=header)
        functions = map(parse_func, texts.decode().split("\0"))
        self._functions = {func.name: func for func in functions}

    def allocate(self, nbytes: int, device: Device, alignment: int) -> ToyBlock:
        """Memory of the device, for the arena of temporaries."""
        return MEMORY.allocate(nbytes, alignment)

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0
               ) -> Callable[..., None]:
        """A launch gets the addresses of its arguments; the evaluator takes arrays."""
        func = self._functions[symbol]
        run = evaluator_of(func)
        return lambda *addresses: run(*(
            array_at(address, buffer.static_shape, buffer.dtype.numpy)
            for address, buffer in zip(addresses, func.params, strict=True)))
