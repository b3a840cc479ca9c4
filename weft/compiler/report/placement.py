"""Where the calls of a program run, and when, by its estimates: a table and a drawing of lanes."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from weft.compiler.report.sizes import at_sizes, typical_sizes
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST, Device
from weft.runtime.devices.sim.description import Links
from weft.runtime.devices.sim.memory import bytes_at, constant_bytes, state_bytes
from weft.runtime.devices.sim.segments import worker_of_call
from weft.runtime.devices.sim.workers import worker_name
from weft.runtime.manifest import Manifest
from weft.runtime.profile import StepTime, lane_of, render_table
from weft.runtime.sizes import evaluate
from weft.support.dataclass import dataclass

_LANE_HEIGHT, _LABEL_WIDTH, _CHART_WIDTH = 22, 130, 900
# A kernel without an estimate.
_UNKNOWN_SECONDS = 1e-6


@dataclass(frozen=True, slots=True)
class Bar:
    """Call number ``call`` of a lane, from ``start`` to ``finish`` in seconds."""

    call: int
    lane: str
    start: float
    finish: float
    label: str


def estimated_bars(manifest: Manifest) -> list[Bar]:
    """The calls in order, each once, as soon as its lane and what it waits for allow.

    Kernels take their estimates on the threads of their device, copies what their link states.
    """
    sizes, links = typical_sizes(manifest), Links(manifest.devices)
    threads = {one.device: one.threads for one in manifest.devices}
    free: dict[str, float] = {}
    bars: list[Bar] = []
    for number, call in enumerate(manifest.steps):
        lane = worker_name(worker_of_call(call))
        ready = max((bars[before].finish for before in call.waits), default=0.0)
        start = max(free.get(lane, 0.0), ready)
        if call.symbol == DEVICE_COPY:
            nbytes = evaluate(call.bytes_moved, sizes)
            seconds = links.between(call.source, call.device).seconds(nbytes)
            label = f"{nbytes} bytes"
        else:
            seconds = (call.seconds or _UNKNOWN_SECONDS) / threads.get(call.device, 1)
            label = call.op or call.symbol
        free[lane] = start + seconds
        bars.append(Bar(number, lane, start, start + seconds, label))
    return bars


def measured_bars(steps: Sequence[StepTime]) -> list[Bar]:
    """The calls of a profile."""
    return [Bar(number, lane_of(step.call), step.start, step.start + step.seconds,
                step.call.op or step.call.symbol) for number, step in enumerate(steps)]


def placement_table(manifest: Manifest) -> str:
    """The devices with their memory, then each call with its lane, estimated times, and waits."""
    bars = estimated_bars(manifest)
    rows = [(str(bar.call), f"{bar.start * 1e6:.1f}", f"{bar.finish * 1e6:.1f}", bar.lane,
             bar.label, ", ".join(map(str, manifest.steps[bar.call].waits))) for bar in bars]
    devices = render_table(
        ("device", "threads", "kernels", "buffers", "constants", "states", "peak [bytes]"),
        list(_device_rows(manifest)), left=("device",))
    calls = render_table(("call", "start [us]", "end [us]", "lane", "what", "waits for"), rows,
                         left=("lane", "what", "waits for"))
    end = max((bar.finish for bar in bars), default=0.0)
    return (f"{devices}\n\n{calls}\n\nestimated {end * 1e6:.1f} us"
            f"{at_sizes(typical_sizes(manifest))}")


def _device_rows(manifest: Manifest) -> Iterator[tuple[str, ...]]:
    sizes = typical_sizes(manifest)
    threads = {one.device: str(one.threads) for one in manifest.devices}
    devices: list[Device] = [HOST, *(one.device for one in manifest.devices)]
    devices += [arena.device for arena in manifest.arenas if arena.device not in devices]
    for device in devices:
        kernels = sum(call.device == device and call.symbol != DEVICE_COPY
                      for call in manifest.steps)
        parts = (bytes_at(manifest, device, sizes), constant_bytes(manifest, device),
                 state_bytes(manifest, device))
        yield (str(device), threads.get(device, ""), str(kernels), *map(str, parts),
               str(sum(parts)))


def lanes_svg(bars: Sequence[Bar]) -> str:
    """A drawing with a lane for each device and link; times are from left to right."""
    lanes = {name: number for number, name in enumerate(sorted({bar.lane for bar in bars}))}
    end = max((bar.finish for bar in bars), default=0.0) or 1.0
    height = _LANE_HEIGHT * len(lanes) + 4
    parts = [f'<text x="0" y="{number * _LANE_HEIGHT + 15}">{html.escape(name)}</text>'
             for name, number in lanes.items()]
    for bar in bars:
        left = _LABEL_WIDTH + _CHART_WIDTH * bar.start / end
        width = max(1.0, _CHART_WIDTH * (bar.finish - bar.start) / end)
        kind = "copy" if " -> " in bar.lane else "kernel"
        title = (f"{bar.call}: {bar.label}, {bar.start * 1e6:.1f} to {bar.finish * 1e6:.1f} us")
        parts.append(
            f'<rect class="{kind}" x="{left:.1f}" y="{lanes[bar.lane] * _LANE_HEIGHT + 3}" '
            f'width="{width:.1f}" height="{_LANE_HEIGHT - 6}"><title>{html.escape(title)}</title>'
            "</rect>")
    return (f'<svg class="lanes" width="{_LABEL_WIDTH + _CHART_WIDTH}" height="{height}" '
            f'role="img">{"".join(parts)}</svg>')
