"""The distinct kernels of a program: one per structural hash of a primitive function."""

from __future__ import annotations

from collections.abc import Sequence

from weft.compiler.program.program import KernelSource
from weft.ir import Call, Function, Op, post_order, structural_hash

_SYMBOL_LENGTH = 48


class KernelSet:
    """Numbers kernels in the order of their first use."""

    def __init__(self) -> None:
        self.sources: list[KernelSource] = []
        self._numbers: dict[str, int] = {}
        self._digests: dict[Function, str] = {}  # by identity

    @staticmethod
    def of(sources: Sequence[KernelSource]) -> KernelSet:
        """A set that begins with these kernels, under their numbers."""
        made = KernelSet()
        made.sources = list(sources)
        made._numbers = {source.digest: number for number, source in enumerate(sources)}
        return made

    def number_of(self, function: Function) -> int:
        """The number of the kernel of a primitive function."""
        digest = self._digests.get(function)
        if digest is None:
            digest = self._digests[function] = structural_hash(function)
        if digest not in self._numbers:
            self._numbers[digest] = len(self.sources)
            self.sources.append(kernel_source(function, digest))
        return self._numbers[digest]


def kernel_source(function: Function, digest: str) -> KernelSource:
    """The kernel of a primitive function, named by its operators and its structural hash."""
    names = operator_names(function)
    symbol = "_".join(["weft", *names])[:_SYMBOL_LENGTH].replace(".", "_") + f"_{digest[:16]}"
    return KernelSource(symbol, digest, function, " + ".join(names))


def operator_names(function: Function) -> list[str]:
    """The operators of a primitive function, in order of evaluation."""
    return [node.op.name for node in post_order(function.body)
            if isinstance(node, Call) and isinstance(node.op, Op)]
