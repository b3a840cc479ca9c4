"""What the examples share: a compiled step, a loop with a progress bar, curves, accuracy."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import weft
from weft import nn


def arguments(description: str, models: tuple[str, ...], epochs: int) -> argparse.ArgumentParser:
    """The options that all examples have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", choices=models, default=models[0])
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--steps", type=int, default=None, help="stop after so many steps")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--curve", type=Path, default=Path("curve.png"),
                        help="where the curve of the loss is written as PNG")
    return parser


def compiled_step(model: Any, optimizer: Any, loss_of: Callable[..., Any]) -> Callable[..., Any]:
    """One step as one compiled program: loss, gradients, clipping, optimizer."""

    @weft.train_step
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        return loss

    return step


def fit(step: Callable[..., Any], batches: Iterable[Any], total: int, title: str,
        schedule: Any = None) -> list[float]:
    """Run ``step`` on ``total`` batches; the losses."""
    losses: list[float] = []
    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
               TextColumn("loss {task.fields[loss]:.4f}"))
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, loss=math.nan)
        for x, y in itertools.islice(batches, total):
            losses.append(float(step(weft.tensor(x), weft.tensor(y)).item()))
            if schedule is not None:
                schedule.step()
            progress.update(task, advance=1, loss=losses[-1])
    return losses


def epochs_of(loader: Any, epochs: int) -> Iterator[Any]:
    """The batches of several epochs, each in an order of its own."""
    for _ in range(epochs):
        yield from loader


def accuracy(model: Any, x: np.ndarray, y: np.ndarray) -> float:
    """The share of examples whose class has the largest logit."""
    model.eval()
    with weft.no_grad():
        found = model(weft.tensor(x)).argmax(1).numpy()
    model.train()
    return float((found == y).mean())


def smoothed(losses: list[float], window: int = 10) -> list[float]:
    """The mean of the last ``window`` losses at each step."""
    return [sum(losses[max(0, i - window + 1) : i + 1]) / min(i + 1, window)
            for i in range(len(losses))]


def show_curve(losses: list[float], path: Path, title: str) -> None:
    """The curve as PNG (matplotlib, of ``pip install weft[train]``) and in the terminal."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4))
    axes.plot(losses, alpha=0.3, label="loss")
    axes.plot(smoothed(losses), label="mean of 10 steps")
    axes.set(title=title, xlabel="step", ylabel="loss")
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(title, text_curve(smoothed(losses)), f"curve: {path}", sep="\n")


def text_curve(values: list[float], width: int = 68, height: int = 10) -> str:
    """The values as columns of blocks, with the largest and smallest beside them."""
    count = min(width, len(values))
    columns = [values[i * len(values) // count] for i in range(count)]
    low, high = min(columns), max(columns)
    eighths = [round((v - low) / ((high - low) or 1) * (8 * height - 1)) + 1 for v in columns]
    rows = []
    for row in reversed(range(height)):
        label = f"{low + (high - low) * (row + 1) / height:9.3f} "
        blocks = (" ▁▂▃▄▅▆▇█"[min(max(e - 8 * row, 0), 8)] for e in eighths)
        rows.append(label + "".join(blocks))
    return "\n".join(rows)
