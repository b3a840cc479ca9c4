"""``weft calibrate``: measure this machine, or show what is known about one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields

import click

from weft.cli.common import print_json, print_table, session
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.target.host_machine import needs_calibration, stored_machine, stored_path, stored_report
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


@click.command("calibrate")
@click.option("--show", is_flag=True, help="show what is known, and measure nothing")
@click.option("--force", is_flag=True, help="measure again")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def calibrate_command(*, show: bool, force: bool, as_json: bool) -> None:
    """Measure this machine in about a second: ports, clock, caches, memory, threads.

    The result is kept in the cache folder, and decisions for this machine follow it from then on.
    Without it they follow the shipped table of the CPU. Run it while the machine is idle.
    """
    from weft.compiler.first_calibration import calibrate_and_store

    host = CpuTarget.host()
    if not show and (force or not stored_machine()):
        with session():
            calibrate_and_store(host)
        host = CpuTarget.host()
    rows, title = known_values(host)
    if as_json:
        print_json({"machine": host.machine, "from": title,
                    "values": [{f.name: getattr(row, f.name) for f in fields(Row)}
                               for row in rows]})
        return
    print_table(title, ("value", "found", "used", "unit", "from"),
                [(r.name, _text(r.value), _text(r.used), r.unit, r.source) for r in rows])
    if needs_calibration(host.cpu, host.arch):
        click.echo("\nno table describes this CPU; weft calibrate measures it")


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
