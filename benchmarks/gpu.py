"""``python -m benchmarks.gpu``: programs on an NVIDIA GPU, beside torch and the measured peaks.

On a GPU it times weft, torch eager (cuBLAS for matrix products) and torch.compile (Triton for the
rest), each launched as a CUDA graph, alternately, on arrays that stay on the device; outputs are
compared first. It measures the bandwidth of a copy and the rate of a large matrix product as
peaks. Without a GPU it
prints what the compiler estimates and what the assembler says, marked as estimates.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

import weft
from benchmarks.gpu_programs import PROGRAMS, GpuProgram
from weft.codegen.cuda.static_report import kernel_facts
from weft.runtime.devices.cuda.bundle import Bundle
from weft.runtime.devices.cuda.context import DeviceContext, context_of
from weft.runtime.devices.cuda.driver import DEFAULT_STREAM
from weft.runtime.devices.cuda.errors import CudaError
from weft.runtime.devices.cuda.image import KernelObject
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.profile import render_table
from weft.strategy.cuda.machine_model import machine_model
from weft.support.errors import WeftError
from weft.target import CudaTarget
from weft.target.cuda_target import ARCHS

_ROUNDS, _CALLS = 9, 20
_COPY_BYTES = 1 << 28


@dataclass(frozen=True)
class Peaks:
    """Measured on this device: bytes per second of a copy, and FLOP/s of a large bf16 product."""

    bytes_per_second: float
    flops_per_second: float


@click.command()
@click.argument("names", nargs=-1)
@click.option("--arch", default=None, help="the architecture (default: that of the GPU, or sm_90a)")
@click.option("--rounds", default=_ROUNDS, show_default=True)
def main(names: tuple[str, ...], arch: str | None, rounds: int) -> None:
    """Compare NAMES (default: all) on a GPU, or estimate them."""
    chosen = [one for one in PROGRAMS if not names or one.name in names]
    try:
        context = context_of(0)
    except CudaError as error:
        click.echo(f"{error.what}: all figures are ESTIMATES\n")
        click.echo(estimates(chosen, arch or "sm_90a"))
        return
    click.echo(f"{context!r}\n")
    click.echo(measured(chosen, context, arch or arch_of(context), rounds))


def arch_of(context: DeviceContext) -> str:
    """The newest architecture that the device runs, with its specific instructions."""
    capability = context.properties.capability
    fitting = [name for name, one in ARCHS.items()
               if one.capability == capability or (one.capability < capability
                                                   and not name.endswith("a"))]
    return max(fitting, key=lambda name: (ARCHS[name].capability, name))


def estimates(programs: list[GpuProgram], arch: str) -> str:
    """A table of estimated times, with the resources of the slowest kernel."""
    rows = []
    bandwidth = machine_model(CudaTarget(arch)).bandwidth
    for program in programs:
        try:
            module = weft.compile(weft.parse(program.text), target=f"cuda -arch={arch}")
            seconds = sum(step.seconds for step in module.manifest.steps)
            rows.append((program.name, f"{seconds * 1e6:.1f}",
                         _share(program.nbytes / bandwidth, seconds),
                         *_resources(module)))
        except WeftError as error:
            rows.append((program.name, "fails", "", error.what[:60], "", ""))
    columns = ("program", f"us (estimated, {arch})", "of bandwidth", "registers", "spills",
               "shared bytes")
    return render_table(columns, rows, left=("program",))


def _share(limit: float, seconds: float) -> str:
    return f"{limit / seconds:.0%}" if seconds else ""


def _resources(module: Any) -> tuple[str, str, str]:
    """The most registers, spills and shared memory of a kernel of the program."""
    objects = module.recompiler.code.objects
    facts = [one for code in Bundle.of(objects).kernels
             for one in kernel_facts(KernelObject.from_bytes(code))]
    if not facts:
        return "", "", ""
    return (str(max(f.resources.registers for f in facts)),
            str(sum(f.resources.spill_stores + f.resources.spill_loads for f in facts)),
            str(max(f.shared_bytes for f in facts)))


def measured(programs: list[GpuProgram], context: DeviceContext, arch: str, rounds: int) -> str:
    """A table of measured times and shares of the measured peaks."""
    peaks = measured_peaks(context)
    rows = []
    for program in programs:
        values = [_numbers(shape) for _, shape in program.inputs]
        runners = {"weft": _weft(program, values, context, arch), **_torch(program, values)}
        _compare(program, runners)
        times: dict[str, list[float]] = {name: [] for name in runners}
        for _ in range(rounds):  # alternately: clocks change with heat
            for name, run in runners.items():
                times[name].append(timed(context, run, _stream(context, name)))
        found = {name: statistics.median(one) for name, one in times.items()}
        own = found["weft"]
        rows.append((program.name, f"{own * 1e6:.1f}",
                     f"{program.flops / own / peaks.flops_per_second:.0%}",
                     f"{program.nbytes / own / peaks.bytes_per_second:.0%}",
                     *(f"{found[name] / own:.2f}" if name in found else ""
                       for name in ("torch eager", "torch.compile"))))
    columns = ("program", "weft [us]", "of peak FLOP/s", "of peak copy", "torch eager / weft",
               "torch.compile / weft")
    return (render_table(columns, rows, left=("program",))
            + f"\npeaks: copy {peaks.bytes_per_second * 1e-9:.0f} GB/s, matrix product "
              f"{peaks.flops_per_second * 1e-12:.1f} TFLOP/s")


def timed(context: DeviceContext, run: Callable[[], object], stream: int) -> float:
    """Seconds of one call, of several in a row, by events on the stream that ``run`` uses."""
    driver = context.driver
    run()
    driver.synchronize_device()
    first, last = driver.create_event(timed=True), driver.create_event(timed=True)
    driver.record(first, stream)
    for _ in range(_CALLS):
        run()
    driver.record(last, stream)
    driver.synchronize_event(last)
    seconds = driver.seconds_between(first, last) / _CALLS
    driver.destroy_event(first)
    driver.destroy_event(last)
    return seconds


def _stream(context: DeviceContext, name: str) -> int:
    """The stream of a contestant: torch works on the default stream."""
    return context.compute if name == "weft" else DEFAULT_STREAM


def measured_peaks(context: DeviceContext) -> Peaks:
    """The peaks of this device; the product is cuBLAS's if torch is installed, else weft's."""
    driver = context.driver
    blocks = [context.memory.allocate(_COPY_BYTES) for _ in range(2)]
    copy = min(timed(context, lambda: driver.copy_on_device(
        blocks[0].address, blocks[1].address, _COPY_BYTES, context.compute), context.compute)
        for _ in range(3))
    gemm = next(one for one in PROGRAMS if one.name == "gemm_bf16_4096")
    values = [_numbers(shape) for _, shape in gemm.inputs]
    runners = _torch(gemm, values) or {"weft": _weft(gemm, values, context, arch_of(context))}
    product = min(timed(context, run, _stream(context, name))
                  for name, run in runners.items() for _ in range(3))
    return Peaks(2 * _COPY_BYTES / copy, gemm.flops / product)


def _numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _weft(program: GpuProgram, values: list[np.ndarray], context: DeviceContext,
          arch: str) -> Callable[[], object]:
    module = weft.compile(weft.parse(program.text), target=f"cuda -arch={arch}")
    return module.bind(*(
        weft.DeviceArray.from_numpy(value.astype(numpy_dtype(dtype)), context.device.number)
        for value, (dtype, _) in zip(values, program.inputs, strict=True)))


def _torch(program: GpuProgram, values: list[np.ndarray]) -> dict[str, Callable[[], object]]:
    """The program in torch, eager and compiled; nothing without torch for this GPU."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    function = program.torch(torch)
    arrays = [torch.from_numpy(value).cuda().to(getattr(torch, dtype))
              for value, (dtype, _) in zip(values, program.inputs, strict=True)]
    # Its own CUDA graphs copy the inputs at each call.
    compiled = torch.compile(function, mode="max-autotune-no-cudagraphs")
    return {"torch eager": _as_graph(torch, function, arrays),
            "torch.compile": _as_graph(torch, compiled, arrays)}


def _as_graph(torch: Any, function: Callable[..., Any], arrays: list[Any]) -> Callable[[], object]:
    """A call that replays the launches of the function and returns its output."""
    function(*arrays)  # compiles, outside of the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = function(*arrays)

    def replay() -> object:
        graph.replay()
        return output
    return replay


def _compare(program: GpuProgram, runners: dict[str, Callable[[], object]]) -> None:
    """Refuse to time outputs that differ by more than 1 % of the largest element."""
    found = {name: _as_numpy(run()) for name, run in runners.items()}
    scale = np.abs(found["weft"]).max()
    for name, output in found.items():
        if not np.allclose(output, found["weft"], rtol=0, atol=0.01 * scale):
            raise click.ClickException(f"{program.name}: weft and {name} differ")


def _as_numpy(output: Any) -> np.ndarray:
    if isinstance(output, weft.DeviceArray):
        return output.numpy().astype(np.float32)
    return output.float().cpu().numpy()


if __name__ == "__main__":
    main()
