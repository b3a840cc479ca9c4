"""``weft quantize``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import weft
from weft.cli.common import read_npz, session, shapes_option
from weft.cli.models import ARTIFACT_SUFFIX, ModelFile
from weft.cli.output import check_writable, write_text
from weft.support.errors import OptionError

if TYPE_CHECKING:
    from weft.quantization import QuantizedModule

_PROGRAM_SUFFIXES = (".ir", ".weft-ir", ".txt")


@click.command("quantize")
@click.argument("model", type=ModelFile())
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True,
              help="the program to write (.ir), or the artifact (.weft), which is compiled here")
@click.option("--scheme", default="int4", show_default=True,
              help="such as bf16, int8_weight_only, int4, int4_awq, nf4 (docs/quantization.md)")
@click.option("--data", type=click.Path(path_type=Path, dir_okay=False, exists=True), default=None,
              help="calibration data: an .npz file with an array per input; arrays with one axis "
                   "more than the input hold batches")
@click.option("--format", "block_format", default=None, metavar="FORMAT",
              help="the format of weights in blocks, such as int4_g64_z or q4_0")
@click.option("--keep", multiple=True, metavar="PATTERN",
              help="layers that stay as they are (repeatable), such as *.head")
@click.option("--max-error", type=float, default=None,
              help="layers with a larger relative error stay wider (default: 0.2)")
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), default=None,
              help="also write the report to this file, .json or .html")
@shapes_option
def quantize_command(model: str, output: Path, scheme: str, data: Path | None,
                     block_format: str | None, keep: tuple[str, ...], max_error: float | None,
                     report: Path | None, shapes: tuple[tuple[str, tuple[object, ...]], ...]
                     ) -> None:
    """Write MODEL with weights, or whole layers, in fewer bits.

    \b
    weft quantize net.onnx -o net.ir                              int4 weights
    weft quantize net.onnx -o net.ir --scheme int4_awq --data x.npz
    weft quantize net.onnx -o net.weft --scheme bf16              compiled too

    weft compiles and runs what it writes as any other model. The table says for each layer what it
    has become, and the relative error of its output, or without data of its weight.
    """
    if output.suffix not in (*_PROGRAM_SUFFIXES, ARTIFACT_SUFFIX):
        raise OptionError(f"cannot write a quantised model as {output.suffix or 'a file'}",
                          where=output, expected=f"{', '.join(_PROGRAM_SUFFIXES)} or "
                          f"{ARTIFACT_SUFFIX}")
    check_writable(output)
    if report is not None:
        check_writable(report)
    options: dict[str, Any] = {name: value for name, value in (
        ("format", block_format), ("keep", keep), ("max_error", max_error)) if value}
    with session():
        made = weft.quantize(model, None if data is None else read_npz(data), scheme=scheme,
                             inputs=dict(shapes) or None, **options)
        if output.suffix == ARTIFACT_SUFFIX:
            weft.compile(made).export(output)
        else:
            write_text(output, f"{made}\n")
    click.echo(str(made.report))
    if report is not None:
        _write_report(made, report)
    click.echo(f"wrote {output} ({output.stat().st_size / 1e6:.1f} MB)")


def _write_report(made: QuantizedModule, path: Path) -> None:
    text = made.report.to_html() if path.suffix in (".html", ".htm") \
        else json.dumps(made.report.to_dict(), indent=2)
    write_text(path, text)
