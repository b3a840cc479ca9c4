"""What the assembler and the PTX say about kernels, without running them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from weft.codegen.cuda.ptxas import Resources, assemble
from weft.runtime.devices.cuda.image import DeviceKernel, KernelObject
from weft.support.dataclass import dataclass

_ENTRY = re.compile(r"\.entry\s+([\w.$]+)")
_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?\{?\s*([a-z][\w.:]*)[ \t][^;\n]*;", re.MULTILINE)
_DIRECTIVE = ("ret", "bra", "mov", "reg")
# The first pattern that an opcode starts with names its kind.
_KINDS: tuple[tuple[str, str], ...] = (
    ("wgmma.mma", "wgmma"), ("mma.sync", "mma"), ("ldmatrix", "ldmatrix"),
    ("cp.async.bulk", "TMA"), ("cp.async", "cp.async"), ("bar", "barrier"), ("shfl", "shuffle"),
    ("atom", "atomic"), ("red", "atomic"), ("fma", "fma"), ("div", "division"),
    ("sqrt", "square root"),
)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One ``__global__`` function: its launch, its resources, its instructions.

    ``instructions`` counts the PTX instructions by kind, once each however often they run; loads
    and stores are counted by memory and width in bits (``ld.global 128``).
    """

    launch: DeviceKernel
    resources: Resources
    instructions: Mapping[str, int]

    @property
    def shared_bytes(self) -> int:
        """Static and dynamic shared memory of a block."""
        return self.resources.shared_bytes + self.launch.shared_bytes

    @property
    def threads(self) -> int:
        """The threads of a block."""
        x, y, z = self.launch.block
        return x * y * z


def kernel_facts(image: KernelObject) -> tuple[KernelFacts, ...]:
    """The facts of each launch; ``CodegenError`` if ``ptxas`` is missing or rejects the code."""
    resources = assemble(image.ptx, image.arch).resources
    mixes = dict(instruction_mix(image.ptx))
    return tuple(KernelFacts(launch, resources[launch.entry], mixes[launch.entry])
                 for launch in image.launches)


def instruction_mix(ptx: str) -> Iterator[tuple[str, Mapping[str, int]]]:
    """The entries of a module, each with its instructions by kind."""
    _, *parts = _ENTRY.split(ptx)
    for entry, body in zip(parts[::2], parts[1::2], strict=True):
        kinds = Counter(_kind(match[1]) for match in _INSTRUCTION.finditer(body)
                        if match[1].split(".")[0] not in _DIRECTIVE)
        yield entry, dict(sorted(kinds.items()))


def _kind(opcode: str) -> str:
    name, *modifiers = opcode.split(".")
    if name in ("ld", "st") and modifiers and modifiers[0] != "param":
        lanes = next((int(m[1:]) for m in modifiers if re.fullmatch(r"v\d", m)), 1)
        bits = re.search(r"\d+$", modifiers[-1])
        return f"{name}.{modifiers[0]} {lanes * int(bits[0]) if bits else 0}"
    for start, kind in _KINDS:
        if opcode.startswith(start):
            return kind
    return "parameter" if name in ("ld", "st") else "other"
