"""The values of a machine, with where each comes from: the table of ``weft calibrate``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.target.host_machine import stored_machine, stored_path, stored_report
from weft.target.machine import VECTOR_BITS, Machine
from weft.target.machine_tables import machine_of, machine_table

_UNITS = {"frequency": "Hz", "fork_join_seconds": "s", "prefetch_distance_bytes": "bytes",
          "page_bytes": "bytes", "huge_page_bytes": "bytes", "fma_latency": "cycles"}
_LEVEL_VALUES = {"bytes": ("bytes", "bytes"), "shared_by": ("shared_by", "cores"),
                 "load": ("load_bytes_per_cycle", "bytes/cycle"),
                 "load_all": ("load_bytes_per_cycle_all", "bytes/cycle"),
                 "store": ("store_bytes_per_cycle", "bytes/cycle"),
                 "latency": ("latency_cycles", "cycles")}


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a machine: as measured or published, as used, and where it comes from."""

    name: str
    value: float
    used: float
    unit: str
    source: str

    def texts(self) -> tuple[str, str, str, str, str]:
        """The columns of a table."""
        return self.name, _text(self.value), _text(self.used), self.unit, self.source


def known_values(host: CpuTarget) -> tuple[list[Row], str]:
    """What decisions for ``host`` are based on, and a title that says where it is from."""
    machine = machine_of(host.machine)
    if stored_machine():
        report = stored_report()
        raw = machine_of(str(report.get("raw", host.machine)))
        title = f"{host.cpu}, measured ({stored_path()})"
        return list(rows_of(raw, machine, report.get("sources", {}))), title
    table = machine_table(host.machine)
    return list(rows_of(table.machine, machine, table.sources)), f"{host.cpu}, {table.title}"


def rows_of(found: Machine, used: Machine, sources: Mapping[str, str]) -> Iterator[Row]:
    """The values of a machine, core first, then level by level."""
    for bits, value, rounded in zip(VECTOR_BITS, found.fma_per_cycle, used.fma_per_cycle,
                                    strict=True):
        yield Row(f"fma_{bits}", value, rounded, "per cycle", sources.get(f"core.fma_{bits}", ""))
    for field in fields(Machine):
        value, rounded = getattr(found, field.name), getattr(used, field.name)
        if isinstance(value, (int, float)):
            yield Row(field.name, value, rounded, _UNITS.get(field.name, "per cycle"),
                      sources.get(f"core.{field.name}", ""))
    for name, level in found.levels.items():
        for key, (attribute, unit) in _LEVEL_VALUES.items():
            yield Row(f"{name}.{key}", getattr(level, attribute),
                      getattr(used.levels[name], attribute), unit,
                      sources.get(f"{name}.{key}", ""))


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
