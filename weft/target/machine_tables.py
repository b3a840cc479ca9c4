"""The machines that weft ships: ``machines/*.toml``, with a source for each value.

A file has a table ``core`` and one for each level; a value is a pair: the number, and the name of
an entry of ``sources``, which says where it was published or measured. The name tells how far the
value can be trusted (``KINDS``). A file without a table ``l3`` describes a CPU without a third
level.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.support.suggestion import did_you_mean
from weft.target.cpus import MACHINES_OF_CPUS
from weft.target.machine import LEVELS, OPTIONAL_NUMBERS, Level, Machine

_FOLDER = Path(__file__).parent / "machines"
MEASURED, TABLED, ESTIMATED = "measured", "tabled", "estimated"
# What a value is, by the name of its source; any other is an estimate. Those after publications are
# round figures of their order, not read off one by one. A measurement replaces them all.
KINDS = {"measured": MEASURED, "manual": TABLED, "kernel": TABLED}


@dataclass(frozen=True, slots=True)
class MachineTable:
    """A shipped machine: its values as published, and the source of each by ``"l1.latency"``.

    ``kinds`` says of each value whether it is measured, tabled or estimated.
    """

    name: str
    title: str
    arch: str
    machine: Machine
    sources: Mapping[str, str]
    kinds: Mapping[str, str]


def machine_names(arch: str = "") -> list[str]:
    """The shipped machines of an architecture, or all, sorted."""
    names = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    return [name for name in names if not arch or machine_table(name).arch == arch]


@functools.cache
def machine_table(name: str) -> MachineTable:
    """The shipped machine of a name; ``TargetError`` for an unknown one."""
    import tomllib  # only here: a target's text seldom needs a table that is not loaded

    path = _FOLDER / f"{name}.toml"
    if not (name.replace("-", "").isalnum() and path.is_file()):
        raise TargetError(f"unknown machine {name!r}", got=name,
                          expected=", ".join(machine_names()), help=_close(name))
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    named = {f"{table}.{key}": pair[1] for table in ("core", *LEVELS)
             for key, pair in content.get(table, {}).items()}
    return MachineTable(name, content["title"], content["arch"], _machine(content),
                        {key: content["sources"][source] for key, source in named.items()},
                        {key: KINDS.get(source, ESTIMATED) for key, source in named.items()})


def summary_of(kinds: Iterable[str]) -> str:
    """``27 measured, 6 tabled``: how many values are of each kind."""
    counts = Counter(kinds)
    return ", ".join(f"{counts[kind]} {kind}" for kind in (MEASURED, TABLED, ESTIMATED)
                     if counts[kind])


def machine_of(text: str) -> Machine:
    """The machine, with coarse values, that the option ``-machine=`` of a target names or lists."""
    return Machine.parse(text) if "=" in text else _coarse(text)


def machine_of_cpu(cpu: str, arch: str, vector_bits: int) -> str:
    """The name of the shipped machine for a CPU that LLVM names, or of the nearest one.

    The nearest machine has the architecture and the vector width of the CPU.
    """
    nearest = _NEAREST.get((arch, vector_bits)) or _ANY.get(arch, "aarch64")
    return MACHINES_OF_CPUS.get((arch, cpu), nearest)


def knows_cpu(cpu: str, arch: str) -> bool:
    """Whether a shipped machine describes this CPU, not only its architecture."""
    return (arch, cpu) in MACHINES_OF_CPUS


_NEAREST = {("x86_64", 256): "skylake", ("x86_64", 512): "icelake-server"}
# WebAssembly runs on anything; most browsers run on x86-64.
_ANY = {"x86_64": "x86-64", "aarch64": "aarch64", "riscv64": "riscv64", "arm": "aarch64",
        "wasm32": "x86-64"}


def describes(table: MachineTable, arch: str) -> bool:
    """Whether a shipped machine serves an architecture: it is of it, or the nearest one."""
    return arch == table.arch or _ANY.get(arch) == table.name


@functools.cache
def _coarse(name: str) -> Machine:
    return machine_table(name).machine.coarse()


def _close(name: str) -> str:
    return did_you_mean(name, machine_names(), "weft targets --machines lists them", shown=str)


def _machine(content: Mapping[str, Any]) -> Machine:
    core = {key: pair[0] for key, pair in content["core"].items()}
    fma = (float(core["fma_128"]), float(core["fma_256"]), float(core["fma_512"]))
    levels = {name: _level(content[name]) for name in LEVELS if name in content}
    return Machine(
        core["frequency"], fma, float(core["fma_latency"]), float(core["loads_per_cycle"]),
        float(core["stores_per_cycle"]), core["fork_join_seconds"],
        core["prefetch_distance_bytes"], core["page_bytes"], core["huge_page_bytes"],
        levels["l1"], levels["l2"], levels.get("l3"), levels["memory"],
        **{name: core[name] for name in OPTIONAL_NUMBERS if name in core})


def _level(table: Mapping[str, Any]) -> Level:
    value = {key: pair[0] for key, pair in table.items()}
    return Level(value["bytes"], value["shared_by"], float(value["load"]),
                 float(value["load_all"]), float(value["store"]), float(value["latency"]),
                 value.get("ways", 0))
