"""PTX to machine code by ``ptxas``, with the resources that each kernel needs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from weft.codegen.cuda.toolkit import program, run
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_PROPERTIES = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = {"registers": re.compile(r"Used (\d+) registers"),
         "barriers": re.compile(r"(\d+) barriers"),
         "shared_bytes": re.compile(r"(\d+) bytes smem")}
_ERROR = re.compile(r"ptxas [^,\n]*, line (\d+); error\s*: (.*)")


@dataclass(frozen=True, slots=True)
class Resources:
    """What one thread (registers, stack, spills) and one block (shared memory) of a kernel need.

    All but ``registers`` and ``barriers`` are in bytes. ``shared_bytes`` is static shared memory.
    """

    registers: int
    stack_bytes: int
    spill_stores: int
    spill_loads: int
    barriers: int
    shared_bytes: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """The machine code of a PTX module for one architecture, and the resources by entry."""

    arch: str
    cubin: bytes
    resources: Mapping[str, Resources]
    warnings: tuple[str, ...] = ()


def assemble(ptx: str, arch: str) -> Assembled:
    """Assemble a module for ``arch``.

    Raises ``CodegenError`` with the PTX line for text that ``ptxas`` rejects, and
    ``MissingToolError`` if ``ptxas`` is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="weft-ptxas-") as folder:
        source, result = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        source.write_text(ptx, encoding="utf-8")
        done = run([program("ptxas"), "-v", f"-arch={arch}", "-o", result, source])
        report = done.stdout + done.stderr
        if done.returncode != 0:
            raise _rejected(ptx, arch, report)
        return Assembled(arch, result.read_bytes(), parse_resources(report),
                         tuple(line for line in report.splitlines() if "warning" in line))


def parse_resources(report: str) -> dict[str, Resources]:
    """The resources of each entry in what ``ptxas -v`` prints."""
    found: dict[str, Resources] = {}
    entry, properties = "", (0, 0, 0)
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            entry, properties = match[1], (0, 0, 0)
        elif match := _PROPERTIES.search(line):
            properties = int(match[1]), int(match[2]), int(match[3])
        elif entry and "registers" in line:
            used = {name: int(m[1]) if (m := pattern.search(line)) else 0
                    for name, pattern in _USED.items()}
            found[entry] = Resources(used["registers"], *properties, used["barriers"],
                                     used["shared_bytes"])
    return found


def _rejected(ptx: str, arch: str, report: str) -> CodegenError:
    lines = ptx.splitlines()
    entry = next((line.split("(")[0].split()[-1] for line in lines if ".entry" in line), "PTX")
    match = _ERROR.search(report)
    if match is None:
        return CodegenError(f"ptxas failed for {arch}", where=entry, got=report.strip()[:2000])
    number = int(match[1])
    text = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return CodegenError(f"ptxas rejects the PTX for {arch}: {match[2].strip()}",
                        where=f"{entry}, PTX line {number}", got=text,
                        notes=[m[2].strip() for m in _ERROR.finditer(report)][1:5])
