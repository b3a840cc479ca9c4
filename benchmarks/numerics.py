"""``python -m benchmarks.numerics``: errors against float64, weft beside torch and onnxruntime.

Each case is one operator as an ONNX node and as a function of torch. The same inputs, rounded to
float32, go to weft (through the ONNX importer), to onnxruntime and to torch; torch with float64
gives the exact result. The error is the largest difference over the largest number of the result.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import weft
from benchmarks.numerics_cases import CASES, DATA, Case
from weft.support.dataclass import dataclass

# One ulp of the largest number: smaller errors are rounding of the result.
FLOOR = 1.2e-7
LIMIT = 2.0  # times the best peer
SEEDS = 3


@dataclass(frozen=True, slots=True)
class Errors:
    """The errors of one case on one kind of data; ``None`` for a peer without the operator."""

    case: Case
    data: str
    weft: float
    torch: float
    onnxruntime: float | None

    @property
    def best(self) -> float:
        """The error of the better peer, at least that of rounding the result."""
        known = [e for e in (self.torch, self.onnxruntime) if e is not None and not math.isnan(e)]
        return max(min(known), FLOOR)

    @property
    def ratio(self) -> float:
        return self.weft / self.best


def measure(case: Case, data: str) -> Errors:
    """Run one case everywhere, ``SEEDS`` times; the errors are means over the runs."""
    runs = [_measure(case, data, seed) for seed in range(SEEDS)]
    ours, torch, theirs = zip(*((run.weft, run.torch, run.onnxruntime) for run in runs),
                              strict=True)
    known = [e for e in theirs if e is not None]
    return Errors(case, data, float(np.mean(ours)), float(np.mean(torch)),
                  float(np.mean(known)) if known else None)


def _measure(case: Case, data: str, seed: int) -> Errors:
    import torch

    arrays = case.inputs(data, np.random.default_rng(seed))
    exact = case.torch(*(torch.from_numpy(a.astype(np.float64)) for a in arrays)).numpy()
    found = case.torch(*(torch.from_numpy(a) for a in arrays)).numpy()
    model = case.model(arrays)
    feeds = {name: a for name, a in zip("abcde", arrays, strict=False)
             if name not in case.constants}
    ours = weft.compile(model).run(None, feeds)[0]
    return Errors(case, data, error(ours, exact), error(found, exact), _of_onnxruntime(
        model, feeds, exact))


def error(found: Any, exact: np.ndarray) -> float:
    """The largest difference over the largest number of the exact result."""
    difference = np.abs(np.asarray(found, np.float64).reshape(exact.shape) - exact)
    return float(difference.max() / max(float(np.abs(exact).max()), 1e-300))


def _of_onnxruntime(model: Any, feeds: dict[str, np.ndarray], exact: np.ndarray) -> float | None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                               providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    return error(session.run(None, feeds)[0], exact)


def rows_of(patterns: Sequence[str], report: Callable[[Errors], None]) -> list[Errors]:
    """The errors of all cases whose name fits one of ``patterns``."""
    rows = []
    for case in CASES:
        if not any(fnmatch.fnmatch(case.name, p) for p in patterns):
            continue
        for data in DATA:
            if data in case.data:
                rows.append(measure(case, data))
                report(rows[-1])
    return rows


def table_of(rows: Sequence[Errors]) -> str:
    """A Markdown table, a row per case and kind of data."""
    lines = ["| family | case | data | weft | torch | onnxruntime | weft / best |",
             "|---|---|---|---|---|---|---|"]
    for row in rows:
        peer = "-" if row.onnxruntime is None else f"{row.onnxruntime:.1e}"
        lines.append(f"| {row.case.family} | {row.case.name} | {row.data} | {row.weft:.1e} | "
                     f"{row.torch:.1e} | {peer} | {row.ratio:.1f} |")
    return "\n".join(lines)


@click.command()
@click.option("--only", default="*", help="Patterns of names of cases, separated by commas.")
@click.option("--markdown", is_flag=True, help="Print a Markdown table.")
@click.option("--winograd/--no-winograd", default=True, help="Allow Winograd's algorithm.")
def main(only: str, markdown: bool, winograd: bool) -> None:
    """Print the errors; status 1 if an error of weft exceeds twice that of the best peer."""
    def report(row: Errors) -> None:
        click.echo(f"{row.case.name} {row.data}: {row.ratio:.1f}", err=True)

    with weft.config(winograd=winograd):
        rows = rows_of(only.split(","), report)
    if markdown:
        click.echo(table_of(rows))
    else:
        Console(width=130).print(_rich(rows))
    raise SystemExit(any(row.ratio > LIMIT for row in rows))


def _rich(rows: Sequence[Errors]) -> Table:
    table = Table(title="largest error / largest number of the result, float32")
    for column in ("family", "case", "data", "weft", "torch", "onnxruntime", "weft / best"):
        is_text = column in ("family", "case", "data")
        table.add_column(column, justify="left" if is_text else "right")
    for row in rows:
        peer = "-" if row.onnxruntime is None else f"{row.onnxruntime:.1e}"
        table.add_row(row.case.family, row.case.name, row.data, f"{row.weft:.1e}",
                      f"{row.torch:.1e}", peer, f"{row.ratio:.1f}")
    return table


if __name__ == "__main__":
    main()
