"""What ``weft calibrate`` and ``weft targets`` print: values of machines, decisions for layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from weft import op
from weft.codegen.calibration.calibrate import NOISY, TABLE
from weft.ir import Call, Expr, const, infer_expr, var
from weft.strategy.cpu.attention.decide import AttentionPlan
from weft.strategy.cpu.convolution.plan import ConvPlan
from weft.strategy.cpu.gemm.blocking import GemmPlan
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.decision import decision_of
from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.target import CpuTarget
from weft.target.cpus import MACHINES_OF_CPUS
from weft.target.host_machine import stored_machine, stored_path, stored_report
from weft.target.machine import VECTOR_BITS, Machine
from weft.target.machine_tables import (
    ESTIMATED,
    MEASURED,
    machine_names,
    machine_of,
    machine_table,
    summary_of,
)

_UNITS = {"frequency": "Hz", "fork_join_seconds": "s", "prefetch_distance_bytes": "bytes",
          "page_bytes": "bytes", "huge_page_bytes": "bytes", "fma_latency": "cycles",
          "divide_cycles": "cycles", "gather_cycles": "cycles", "reorder_window": "instructions"}
_LEVEL_VALUES = {"bytes": ("bytes", "bytes"), "shared_by": ("shared_by", "cores"),
                 "load": ("load_bytes_per_cycle", "bytes/cycle"),
                 "load_all": ("load_bytes_per_cycle_all", "bytes/cycle"),
                 "store": ("store_bytes_per_cycle", "bytes/cycle"),
                 "latency": ("latency_cycles", "cycles")}
# Convolutions: name, channels, outputs, image, kernel, stride.
_CONVOLUTIONS = (
    ("convolution 3x3, 64 channels, 56x56", 64, 64, 56, 3, 1),
    ("convolution 3x3, 128 channels, 28x28", 128, 128, 28, 3, 1),
    ("convolution 3x3, 256 channels, 14x14", 256, 256, 14, 3, 1),
    ("convolution 3x3, 512 channels, 7x7", 512, 512, 7, 3, 1),
    ("convolution 1x1, 256 to 64, 56x56", 256, 64, 56, 1, 1),
)
_GEMMS = ((128, 3072, 768), (128, 768, 3072), (1024, 1024, 1024), (512, 512, 8192))
_ATTENTIONS = ((12, 128, 64), (12, 512, 64))


@dataclass(frozen=True, slots=True)
class Row:
    """One value of a machine: as measured or published, as used, and where it comes from.

    ``kind`` says whether it is measured, tabled or estimated.
    """

    name: str
    value: float
    used: float
    unit: str
    kind: str
    source: str

    def texts(self) -> tuple[str, str, str, str, str, str]:
        """The columns of a table."""
        return (self.name, _text(self.value), _text(self.used), self.unit, self.kind, self.source)


def known_values(host: CpuTarget) -> tuple[list[Row], str]:
    """What decisions for ``host`` are based on, and a title that says where it is from."""
    machine = machine_of(host.machine)
    if stored_machine():
        report = stored_report()
        raw = machine_of(str(report.get("raw", host.machine)))
        title = f"{host.cpu}, measured{_noise(report)} ({stored_path()})"
        sources = report.get("sources", {})
        kinds = {name: ESTIMATED if source == TABLE else MEASURED
                 for name, source in sources.items()}
        return list(rows_of(raw, machine, sources, kinds)), title
    table = machine_table(host.machine)
    rows = rows_of(table.machine, machine, table.sources, table.kinds)
    return list(rows), f"{host.cpu}, {table.title}"


def _noise(report: Mapping[str, Any]) -> str:
    return " while other programs ran" if float(report.get("noise", 0.0)) > NOISY else ""


def summary(host: CpuTarget) -> str:
    """How many values of the machine that decisions follow are measured, tabled and estimated."""
    rows, title = known_values(host)
    return f"{title}: {summary_of(row.kind for row in rows)}"


def rows_of(found: Machine, used: Machine, sources: Mapping[str, str],
            kinds: Mapping[str, str]) -> Iterator[Row]:
    """The values of a machine, core first, then level by level."""
    def row(name: str, value: float, used: float, unit: str, key: str) -> Row:
        return Row(name, value, used, unit, kinds.get(key, ESTIMATED), sources.get(key, ""))

    for bits, value, rounded in zip(VECTOR_BITS, found.fma_per_cycle, used.fma_per_cycle,
                                    strict=True):
        yield row(f"fma_{bits}", value, rounded, "per cycle", f"core.fma_{bits}")
    for field in fields(Machine):
        value, rounded = getattr(found, field.name), getattr(used, field.name)
        if isinstance(value, (int, float)):
            yield row(field.name, value, rounded, _UNITS.get(field.name, "per cycle"),
                      f"core.{field.name}")
    for name, level in found.levels.items():
        for key, (attribute, unit) in _LEVEL_VALUES.items():
            yield row(f"{name}.{key}", getattr(level, attribute),
                      getattr(used.levels[name], attribute), unit, f"{name}.{key}")


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def target_of_machine(name: str) -> CpuTarget:
    """The first CPU that a shipped machine describes; ``TargetError`` for an unknown machine."""
    table = machine_table(name)
    cpus = [cpu for (arch, cpu), machine in MACHINES_OF_CPUS.items()
            if machine == name and arch == table.arch]
    cpu = cpus[0] if cpus else "x86-64" if table.arch == "x86_64" else "generic"
    target = CpuTarget.of(f"llvm -mtriple={table.arch}-unknown-linux-gnu -mcpu={cpu}")
    if target.machine != name:
        raise TargetError(f"no CPU has the machine {name!r}", expected=", ".join(machine_names()))
    return target


def sample_layers() -> Iterator[tuple[str, Call]]:
    """Names and typed calls of the layers, with constant weights."""
    for name, channels, outputs, size, taps, stride in _CONVOLUTIONS:
        weight = const(np.zeros((outputs, channels, taps, taps), np.float32))
        yield name, _typed(op.nn.conv2d(var("x", (1, channels, size, size)), weight,
                                        strides=(stride,) * 2, padding=(taps // 2,) * 4))
    for m, n, k in _GEMMS:
        weight = const(np.zeros((n, k), np.float32))
        yield f"dense M={m}, N={n}, K={k}", _typed(op.nn.dense(var("x", (m, k)), weight))
    for heads, length, depth in _ATTENTIONS:
        q, k, v = (var(name, (heads, length, depth)) for name in "qkv")
        yield f"attention {heads} heads, {length} x {depth}", _typed(op.nn.attention(q, k, v))


def decisions(target: CpuTarget) -> Iterator[tuple[str, str]]:
    """Each layer with the chosen algorithm and its plan in one line."""
    for name, call in sample_layers():
        found = decision_of(call, target)
        if found is not None:
            yield name, f"{found.algorithm}{_plan_text(found.chosen.plan)}"
    yield "threads from", f"{machine_model(target).parallel_threshold:,} scalar operations"


def _plan_text(plan: object) -> str:
    if isinstance(plan, GemmPlan):
        return f" ({plan})"
    if isinstance(plan, ConvPlan) and plan.winograd_tile:
        return ""
    if isinstance(plan, ConvPlan):
        tile = "" if plan.tile is None else f", tile {plan.tile.mr} x {plan.tile.nr_vectors}"
        return f" ({plan.data_layout}{tile}, {plan.row_block} rows a task)"
    if isinstance(plan, AttentionPlan) and plan.tiles is not None:
        return f" (tiles of {plan.tiles.tile} queries, blocks of {plan.tiles.block} keys)"
    return ""


def _typed(expr: Expr) -> Call:
    call = infer_expr(expr)
    if not isinstance(call, Call):
        raise TypeError(f"not a call: {call}")
    return call
