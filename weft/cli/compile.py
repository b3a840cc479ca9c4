"""``weft compile``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

import weft
from weft.cli.common import compile_options, print_json, records_option, renamed_option, session
from weft.cli.compile_options import (
    Sizes,
    all_variants,
    device_arguments,
    device_options,
    plan_options,
    show_timing,
    specialize_option,
)
from weft.cli.models import ModelFile
from weft.cli.output import check_writable
from weft.support.errors import ArtifactError
from weft.support.stage_times import collected

_FORMATS = click.Choice(["weft", "c", "lib"])


@click.command("compile")
@click.argument("model", type=ModelFile())
@click.option("-o", "--output", type=click.Path(path_type=Path), default=None,
              help="the artifact (default: the model's name with .weft, or without a suffix for C)")
@click.option("--format", type=_FORMATS, default="weft", show_default=True,
              help="weft: one file for weft.load; c: a folder with object, header and main.c; "
                   "lib: the same with a static and a shared library")
@renamed_option("--kind", "--format", type=_FORMATS)
@click.option("--levels", default=None, metavar="LIST",
              help="CPUs to have native code for, of which the loader picks one: v2,v3,v4")
@click.option("--portable/--no-portable", default=True,
              help="add the program itself, to be compiled where no native code fits")
@click.option("--check/--no-check", default=True,
              help="run the artifact in a process of its own before it is kept")
@compile_options
@records_option
@specialize_option
@device_options
@plan_options
@click.option("--json", "as_json", is_flag=True, help="print the facts as JSON")
def compile_command(model: str, output: Path | None, target: str | None,
                    shapes: tuple[tuple[str, tuple[object, ...]], ...], opt_level: int,
                    variants: Sequence[Sequence[Sizes]], *, format: str, levels: str | None,
                    portable: bool, check: bool, as_json: bool, strict: bool, timing: bool,
                    **devices: Any) -> None:
    """Compile MODEL into an artifact that runs without a compiler.

    \b
    weft compile resnet50.onnx
    weft compile net.onnx -o net.weft --target "llvm -mcpu=haswell"
    weft compile net.onnx --input-shape data:8x3x224x224
    weft compile net.onnx --specialize "batch=1,8"    faster kernels for these sizes
    weft compile net.onnx --levels v2,v3,v4           code for old and new CPUs in one file
    weft compile net.onnx --format c -o build/net     net.o, net.h and main.c for C
    weft compile net.onnx --format lib -o build/net   libnet.a and libnet.so, with net.h

    An artifact runs at all sizes of a model with dynamic shapes. A model without a program for all
    sizes (weft inspect says why) needs --input-shape for each input with a dynamic shape.
    """
    suffix = ".weft" if format == "weft" else ""
    is_file = Path(model).is_file()  # weft.compile reports other paths
    path = output or (Path(model).with_suffix(suffix) if is_file else Path())
    if output is not None or is_file:
        check_writable(path, folder=format != "weft")
    start = time.perf_counter()
    with session(), collected() if timing else nullcontext() as times:
        module = weft.compile(model, target=target, inputs=dict(shapes) or None,
                              opt_level=opt_level, specialize=all_variants(variants), strict=strict,
                              **device_arguments(**devices))
        seconds = time.perf_counter() - start
        if module.general is None:
            raise _dynamic_shapes(module, path)
        module.export(path, format=format, levels=levels.split(",") if levels else None,
                      portable=portable, check=check)
    if times is not None:
        show_timing(module, seconds, times)
    files = [path] if path.is_file() else sorted(path.iterdir())
    size = sum(file.stat().st_size for file in files)
    facts = {"artifact": str(path), "bytes": size,
             "inputs": [str(port) for port in module.inputs],
             "outputs": [str(port) for port in module.outputs]}
    if as_json:
        print_json(facts)
        return
    click.echo(f"wrote {path} ({size / 1e6:.1f} MB)")
    for side in ("inputs", "outputs"):
        for port in facts[side]:
            click.echo(f"  {side[:-1]} {port}")


def _dynamic_shapes(module: weft.Executable, path: Path) -> ArtifactError:
    """The error for a model with dynamic shapes, with the options that would fix them."""
    dynamic = [port for port in module.inputs if any(isinstance(n, str) for n in port.shape)]
    options = [f"--input-shape {port.name}:{'x'.join(map(str, port.shape))}" for port in dynamic]
    return ArtifactError(
        "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
        where=path,
        notes=[*(f"input {port}" for port in dynamic),
               f"not compiled for all sizes: {module.reason}"],
        help=f"fix the sizes: {' '.join(options)}, with a number in place of each name")
