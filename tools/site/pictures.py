"""``python -m tools.site.pictures``: the curves of the tutorials, drawn from stored figures.

``--measure`` first runs the programs of the tutorials and stores what it finds in
``docs/pictures/tutorials.json``; a test compares the pictures with that file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from tests.docs.tutorials import FOLDER, read_blocks
from tools.site.charts import Chart, Line

PICTURES = FOLDER.parent / "pictures"
STORED = PICTURES / "tutorials.json"
STEPS = {"step01": "as_written", "step02": "reordered", "step03": "vectorized",
         "step04": "cache_blocked", "step05": "one_row", "step06": "microkernel",
         "step07": "panels_outside", "step08": "packed", "step09": "packed_per_panel",
         "step10": "parallel"}
SIZES = (64, 128, 256, 384, 512, 768, 1024)
TICKS = (64, 256, 512, 768, 1024)
ENOUGH = 0.5  # seconds: a step that took longer is not run again


class Figures(TypedDict):
    """GFLOP/s of each step by size, those of the FMA peak of one core, and losses by step."""

    gemm: dict[str, list[float]]
    peak: float
    digits: list[float]


def measure(rounds: int) -> Figures:
    """Run the tutorials; each rate is the best of ``rounds`` that take the steps in turn."""
    gemm = _in_folder("fast_gemm", lambda: _gemm_rates(rounds))
    digits = _in_folder("digits_cnn", lambda: importlib.import_module("train").losses)
    return {"gemm": gemm[0], "peak": gemm[1], "digits": [round(loss, 3) for loss in digits]}


def _in_folder(page: str, run: Any) -> Any:
    """What ``run`` gives in a folder with the files of a tutorial."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for block in read_blocks((FOLDER / f"{page}.md").read_text("utf-8")):
            Path(folder, block.file).write_text(block.source, "utf-8")
        sys.path.insert(0, folder)
        os.chdir(folder)
        try:
            return run()
        finally:
            os.chdir(before)
            sys.path.remove(folder)


def _gemm_rates(rounds: int) -> tuple[dict[str, list[float]], float]:
    from weft.runtime.devices.cpu.rates import measure_fma_peak

    product = importlib.import_module("product")
    functions = {file: getattr(importlib.import_module(file), name)
                 for file, name in STEPS.items()}
    rates: dict[str, list[float]] = {file: [] for file in STEPS}
    peak = 0.0
    for n in SIZES:
        a, b, c = np.random.default_rng(0).random((3, n, n), np.float32)
        kernels = {file: product.Kernel(step, n, 2 if file == "step10" else 1)
                   for file, step in functions.items()}
        times: dict[str, list[float]] = {file: [] for file in STEPS}
        for _ in range(rounds):
            for file, kernel in kernels.items():
                if sum(times[file]) < ENOUGH:
                    start = time.perf_counter()
                    kernel(a, b, c)
                    times[file].append(time.perf_counter() - start)
        for file, seconds in times.items():
            rates[file].append(round(2e-9 * n**3 / min(seconds), 1))
        peak = max(peak, measure_fma_peak(kernels["step09"].library, 1))
    return rates, round(peak, 1)


def drawn(figures: Figures) -> dict[str, str]:
    """The SVG text of each picture, by its path below ``docs/pictures``."""
    pictures = {f"gemm/{file}.svg": _gemm_chart(figures, file).svg() for file in STEPS}
    return pictures | {"digits_loss.svg": _loss_chart(figures["digits"]).svg()}


def _gemm_chart(figures: Figures, file: str) -> Chart:
    shown = list(STEPS)[:list(STEPS).index(file) + 1]
    top = max(figures["peak"], *(max(figures["gemm"][name]) for name in shown))
    lines = [Line([(SIZES[0], figures["peak"]), (SIZES[-1], figures["peak"])], "peak of one core",
                  dashed=True)]
    lines += [Line(list(zip(SIZES, figures["gemm"][name], strict=True)), name=STEPS[name]
                   if name == file else "", strong=name == file) for name in shown]
    return Chart(f"GFLOP/s of {STEPS[file]} by the size of the matrices", "n", "GFLOP/s", lines,
                 TICKS, top * 1.05)


def _loss_chart(losses: list[float]) -> Chart:
    ticks = range(0, len(losses) + 1, 32)
    means = [(i, float(np.mean(losses[max(0, i - 8):i + 1]))) for i in range(len(losses))]
    lines = [Line(list(enumerate(losses))), Line(means, "mean of the last steps", strong=True)]
    return Chart("The loss falls from step to step", "step", "loss", lines, list(ticks),
                 max(losses))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    if options.measure:
        text = json.dumps(measure(options.rounds))
        STORED.write_text(text.replace('], "', '],\n "') + "\n", "utf-8")
    for path, text in drawn(json.loads(STORED.read_text("utf-8"))).items():
        target = PICTURES / path
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
