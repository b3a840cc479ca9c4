"""``python -m benchmarks.figures``: the figures of README.md, measured, stored as text and drawn.

``benchmarks/figures.json`` holds what was measured; the table of the README and the drawing are
written from it, and a test compares the table with the file.
"""

from __future__ import annotations

import json
import re
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypedDict

import click

from benchmarks.__main__ import cpu_name
from benchmarks.harness import Failures
from benchmarks.suite import SUITE

ROOT = Path(__file__).resolve().parents[1]
STORED = ROOT / "benchmarks" / "figures.json"
README = ROOT / "README.md"
DRAWING = ROOT / "docs" / "pictures" / "latency.svg"
MODELS = {"resnet50": "ResNet-50", "mobilenet_v2": "MobileNetV2", "efficientnet": "EfficientNet",
          "bert": "BERT-base, 128 tokens", "vit": "ViT-B/16", "gpt2": "GPT-2, 128 tokens"}
# Each peer of the table, with the runs of which the fastest counts.
PEERS = {"weft": ("weft",), "onnxruntime": ("onnxruntime",), "openvino": ("openvino",),
         "torch": ("torch", "module", "inductor")}
ABOVE = """\
Milliseconds per call, batch 1, fp32, {threads} threads, {cpu}; medians of interleaved rounds,
outputs compared first, nothing tuned; torch is the fastest of eager and Inductor. The geometric
mean of the last column is {mean:.2f}. `python -m benchmarks.figures` measures them again,
`make bench` more models.

"""
BELOW = """

![Time of each runtime over that of weft](docs/pictures/latency.svg)
"""
MARKS = re.compile(r"(<!-- figures: .*? -->\n).*(<!-- end of figures -->)", re.DOTALL)


class Figures(TypedDict):
    """Medians in milliseconds, by model and peer; ``None`` where a peer does not run the model."""

    cpu: str
    threads: int
    versions: dict[str, str]
    milliseconds: dict[str, dict[str, float | None]]


def measure(threads: int, rounds: int, seconds: float) -> Figures:
    """Time all models; raises ``click.ClickException`` if weft fails or outputs differ."""
    failures, rows = Failures(), {}
    runs = [run for group in PEERS.values() for run in group]
    for name in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            path, feeds = SUITE[name].write(Path(folder), 1)
            results = failures.measured(path, feeds, runs, threads, rounds=rounds,
                                        seconds_per_round=seconds)
        medians = {c.peer: round(c.median * 1e3, 3) for c in results}
        rows[name] = {peer: min((medians[run] for run in group if run in medians), default=None)
                      for peer, group in PEERS.items()}
        click.echo(f"{name}: {rows[name]}", err=True)
    failures.raise_any()
    return {"cpu": cpu_name(), "threads": threads, "milliseconds": rows,
            "versions": {peer: version(peer) for peer in PEERS if peer != "weft"}}


def ratio(row: Mapping[str, float | None]) -> float:
    """The time of weft divided by the time of the fastest peer."""
    others = [time for peer, time in row.items() if peer != "weft" and time is not None]
    assert row["weft"] is not None
    return row["weft"] / min(others)


def table(figures: Figures) -> str:
    """The table of the README, its picture and what they mean."""
    rows = figures["milliseconds"]
    versions = figures["versions"]
    heads = ["model", *("weft" if p == "weft" else f"{p} {versions[p].partition('+')[0]}"
                        for p in PEERS), "weft / best peer"]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for name, row in rows.items():
        cells = [MODELS[name], *(_milliseconds(row[peer]) for peer in PEERS), f"{ratio(row):.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    mean = statistics.geometric_mean(map(ratio, rows.values()))
    return ABOVE.format(mean=mean, **figures) + "\n".join(lines) + BELOW


def _milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def readme_with(figures: Figures) -> str:
    """The text of the README with these figures in it."""
    return MARKS.sub(lambda found: found[1] + table(figures) + found[2],
                     README.read_text(encoding="utf-8"))


def draw(figures: Figures, path: Path) -> None:
    """A bar per model and peer: its time over that of weft."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows, peers = figures["milliseconds"], list(PEERS)
    with mpl.rc_context({"svg.hashsalt": "weft", "svg.fonttype": "none", "font.size": 9}):
        canvas = Figure(figsize=(7.5, 2.8), layout="constrained")
        axes = canvas.subplots()
        for number, peer in enumerate(peers):
            axes.bar([i + 0.2 * number for i in range(len(rows))], _over_weft(rows, peer), 0.18,
                     label=peer)
        axes.set_xticks([i + 0.3 for i in range(len(rows))],
                        [MODELS[name].partition(",")[0] for name in rows])
        axes.set_ylabel("time / time of weft")
        axes.axhline(1, color="gray", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(ncols=len(peers), frameon=False, loc="lower left", bbox_to_anchor=(0, 1))
        canvas.savefig(path, format="svg", metadata={"Date": None})


def _over_weft(rows: Mapping[str, Mapping[str, float | None]], peer: str) -> Sequence[float]:
    return [(row[peer] or 0) / (row["weft"] or 1) for row in rows.values()]


@click.command()
@click.option("--threads", default=2, help="Threads of every runtime.")
@click.option("--rounds", default=5, help="Rounds in turn; figures are medians over all calls.")
@click.option("--seconds", default=0.5, help="Seconds of each runtime in each round.")
@click.option("--stored", is_flag=True, help="Write table and drawing from the stored figures.")
def main(threads: int, rounds: int, seconds: float, *, stored: bool) -> None:
    """Measure the figures of README.md, store them, and write the table and the drawing."""
    if not stored:
        text = json.dumps(measure(threads, rounds, seconds), indent=1, ensure_ascii=False)
        STORED.write_text(text + "\n", encoding="utf-8")
    figures: Figures = json.loads(STORED.read_text(encoding="utf-8"))
    README.write_text(readme_with(figures), encoding="utf-8")
    draw(figures, DRAWING)


if __name__ == "__main__":
    main()
