"""``python -m benchmarks.hot_loops``: the hot loop of a GEMM for CPUs that are not at hand.

The instructions of one iteration are counted in the assembly. Where llvm-mca is installed (a Debian
package, ``llvm-19``), it estimates the cycles of an iteration with all data in L1; the bound is the
multiply-adds over the FMA units of the CPU.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import weft
from weft import op
from weft.ir import Function, const, var

M, N, K = 128, 384, 256  # several tiles, so that the loop prefetches
_LABEL = re.compile(r"^(\.LBB\w+):")
_BRANCH = re.compile(r"^\s+(?:j[a-z]+|b\.?[a-z]*|cb\w+|tb\w+)\s.*?(\.LBB\w+)")
_FMA = re.compile(r"^(?:vfn?m(?:add|sub)\w+|fmla|fmadd)$")
_ITERATIONS = 200


@dataclass(frozen=True)
class Cpu:
    """A CPU to generate code for, and its names for llvm-mca with the FMA units of each."""

    target: str
    models: tuple[tuple[str, int], ...] = ()


X86, ARM = "llvm -mtriple=x86_64-unknown-linux-gnu", "llvm -mtriple=aarch64-unknown-linux-gnu"
# llvm-mca gives Sapphire Rapids one 512-bit FMA unit; Skylake-X stands for the cores with two.
CPUS = (
    Cpu(f"{X86} -mcpu=haswell", (("haswell", 2), ("znver2", 2), ("znver3", 2))),
    Cpu(f"{X86} -mcpu=sapphirerapids", (("skylake-avx512", 2),)),
    Cpu(f"{ARM} -mcpu=generic",
        (("cortex-a72", 1), ("neoverse-n1", 2), ("neoverse-v1", 4), ("neoverse-v2", 4))),
)


@dataclass(frozen=True)
class HotLoop:
    """The lines of the innermost loop with most multiply-adds, and what they are."""

    lines: tuple[str, ...]

    @staticmethod
    def of(assembly: str) -> HotLoop:
        """Raises ``ValueError`` for assembly without a loop."""
        return max(map(HotLoop, _loops(assembly.splitlines())), key=lambda loop: loop.fmas)

    @property
    def instructions(self) -> list[tuple[str, str]]:
        """Mnemonic and operands of each."""
        split = (line.strip().partition("\t") for line in self.lines if _is_instruction(line))
        return [(name, operands.strip()) for name, _, operands in split]

    @property
    def fmas(self) -> int:
        return sum(bool(_FMA.match(name)) for name, _ in self.instructions)

    @property
    def hints(self) -> int:
        return sum(name.startswith(("prefetch", "prfm")) for name, _ in self.instructions)

    @property
    def loads(self) -> int:
        """Vectors and elements that are read; a pair counts as two."""
        return sum(1 + name.startswith("ldp") for name, operands in self.instructions
                   if _reads(name, operands))

    @property
    def stores(self) -> int:
        """Stores, and reads of the stack: both come from spilled registers."""
        return sum(_writes(name, operands) or bool(re.search(r"%[er]sp|\bsp\b", operands))
                   for name, operands in self.instructions)

    @property
    def others(self) -> int:
        pairs = sum(name.startswith("ldp") for name, _ in self.instructions)
        return (len(self.instructions) - self.fmas - self.hints - (self.loads - pairs)
                - self.stores)


def _is_instruction(line: str) -> bool:
    return line.startswith("\t") and not line.strip().startswith((".", "#", "//"))


def _reads(name: str, operands: str) -> bool:
    if name.startswith(("prefetch", "prfm", "lea")):
        return False
    if "[" in operands:
        return name.startswith("ld")
    return "(" in operands and not _writes(name, operands)


def _writes(name: str, operands: str) -> bool:
    if "[" in operands:
        return name.startswith("st")
    return name.startswith(("mov", "vmov")) and operands.rstrip().endswith(")")


def _loops(lines: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The innermost loops: from a label to a branch back to it, without labels in between."""
    start, label = 0, ""
    for number, line in enumerate(lines):
        found = _LABEL.match(line)
        if found:
            start, label = number + 1, found[1]
            continue
        branch = _BRANCH.match(line)
        if branch and label and branch[1] == label:
            yield tuple(lines[start:number + 1])


def gemm_assembly(target: str, m: int = M, n: int = N, k: int = K) -> str:
    """The code of a dense layer with a constant weight."""
    x = var("x", (m, k), "float32")
    weight = const(np.ones((n, k), np.float32))
    return str(weft.compile(Function((x,), op.nn.dense(x, weight)), target=target).as_text("asm"))


def mca_cycles(loop: HotLoop, triple: str, cpu: str, tool: str) -> float:
    """Cycles of one iteration by llvm-mca; ``nan`` for a CPU that it does not know."""
    source = "\n".join(("hot:", *loop.lines[:-1]))
    command = [tool, f"-mtriple={triple}", f"-mcpu={cpu}", f"-iterations={_ITERATIONS}"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    found = re.search(r"Total Cycles:\s+(\d+)", done.stdout)
    return int(found[1]) / _ITERATIONS if found else float("nan")


@click.command()
def main() -> None:
    """Instructions and estimated cycles of the hot loop of a GEMM, for several CPUs."""
    tool = shutil.which("llvm-mca-19") or shutil.which("llvm-mca")
    table = Table(title=f"hot loop of a GEMM {M}x{N}x{K}, one iteration")
    for name in ("target", "FMAs", "loads", "hints", "spills", "others", "model", "bound",
                 "cycles"):
        table.add_column(name, justify="left" if name in ("target", "model") else "right")
    for cpu in CPUS:
        loop = HotLoop.of(gemm_assembly(cpu.target))
        counts = [loop.fmas, loop.loads, loop.hints, loop.stores, loop.others]
        triple, name = re.findall(r"=(\S+)", cpu.target)
        for model, units in cpu.models:
            cycles = f"{mca_cycles(loop, triple, model, tool):.1f}" if tool else "-"
            table.add_row(name if triple.startswith("x86") else triple, *map(str, counts), model,
                          f"{loop.fmas / units:.1f}", cycles)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
