"""What ``weft inspect`` prints of a model: its tensors, kernels and memory."""

from __future__ import annotations

from typing import Any

import click

from weft.cli.common import print_table
from weft.compiler.options import CompileOptions
from weft.compiler.report.sizes import (
    ESTIMATE,
    arena_bytes_at,
    at_sizes,
    kernel_rows,
    memory_text,
    placement_text,
    symbol_rows,
    typical_sizes,
)
from weft.frontend.source import open_source
from weft.runtime.launchers import launcher_of
from weft.support.errors import InvalidInputError
from weft.transform.passes.extract_subgraph import tensors_of


def print_tensors(model: str, shapes: tuple[tuple[str, tuple[object, ...]], ...]) -> None:
    options = CompileOptions.make(inputs=dict(shapes) or None)
    module = open_source(model, None, options).import_whole(options)
    for name, value in tensors_of(module).items():
        click.echo(f"{name}: {value.checked_type}")


def print_summary(module: Any) -> None:
    manifest = module.manifest
    for port in module.inputs:
        click.echo(f"input  {port}")
    for port in module.outputs:
        click.echo(f"output {port}")
    reason = _reason(module)
    if reason is not None:
        click.echo(f"\na program for each set of input shapes, compiled when they arrive: {reason}")
        return
    if manifest.symbols:
        click.echo("\none program for all sizes")
        print_table("", ("symbol", "sizes", "from"), symbol_rows(manifest))
    # The virtual machine determines at run time which kernels are called, and how often.
    calls = manifest.steps if manifest.vm is None else manifest.vm.kernels
    sizes = typical_sizes(manifest)
    rows = kernel_rows(manifest, calls)
    columns = ("#", "operators", "sizes", "implementation", f"MFLOP{at_sizes(sizes)}",
               ESTIMATE)
    kept = range(6) if manifest.symbols else (0, 1, 3, 4)
    print_table("", [columns[n] for n in kept], [[row[n] for n in kept] for row in rows])
    launcher = launcher_of(manifest)
    if launcher.runs_devices_at_once:
        click.echo(f"\n{module.as_text('placement')}\n")
    if launcher.copies_between_memories:
        click.echo(placement_text(manifest, sizes))
    click.echo(f"arena {arena_bytes_at(manifest, sizes) / 1e6:.2f} MB{at_sizes(sizes)}")
    if manifest.vm is None:
        click.echo(memory_text(manifest, sizes))


def _reason(module: Any) -> str | None:
    """Why a model has no program for all sizes; ``None`` for one that has, and for fixed shapes."""
    return module.reason


def check_timed(module: Any) -> None:
    """Raise ``InvalidInputError`` for dynamic shapes that have no program for all sizes."""
    dynamic = [port for port in module.inputs if any(isinstance(n, str) for n in port.shape)]
    reason = _reason(module)
    if dynamic and not module.manifest.symbols:
        raise InvalidInputError(
            f"input {dynamic[0].name!r} has a dynamic shape, so kernels cannot be timed",
            got=dynamic[0], help=f"--input-shape {dynamic[0].name}:SHAPE fixes them",
            notes=[] if reason is None else [f"not compiled for all sizes: {reason}"])
