"""What quantisation did to each layer: a table, a dictionary, or a page."""

from __future__ import annotations

import dataclasses
import io
from typing import Any

from weft.support.dataclass import dataclass

_COLUMNS = ("layer", "operator", "shape", "from", "to", "error", "MB before", "MB after", "note")
_NUMERIC = (5, 6, 7)


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerReport:
    """One layer: its weight's ``shape``, and its dtype ``before`` and format ``after``.

    ``error`` is relative (Frobenius norms): that of the layer's output where data was given, else
    that of its weight; ``None`` if nothing was measured. ``reason`` says why the layer is wider
    than the scheme asks for; it is empty for the others.
    """

    layer: str
    operator: str
    shape: tuple[int, ...]
    before: str
    after: str
    error: float | None = None
    reason: str = ""
    bytes_before: int = 0
    bytes_after: int = 0

    @property
    def is_kept(self) -> bool:
        """Whether the layer has the dtype that it had."""
        return self.before == self.after

    def row(self) -> tuple[str, ...]:
        """The cells of the table."""
        error = "" if self.error is None else f"{self.error:.4f}"
        return (self.layer, self.operator, "x".join(map(str, self.shape)), self.before, self.after,
                error, f"{self.bytes_before / 1e6:.2f}", f"{self.bytes_after / 1e6:.2f}",
                self.reason)


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """The layers of a model in the order of the program; ``str`` gives a table."""

    scheme: str
    layers: tuple[LayerReport, ...] = ()

    @property
    def kept(self) -> tuple[LayerReport, ...]:
        """The layers that are wider than the scheme asks for."""
        return tuple(layer for layer in self.layers if layer.reason)

    @property
    def bytes_before(self) -> int:
        """Bytes of the weights of all layers."""
        return sum(layer.bytes_before for layer in self.layers)

    @property
    def bytes_after(self) -> int:
        """Bytes of the weights of all layers, quantised."""
        return sum(layer.bytes_after for layer in self.layers)

    def summary(self) -> str:
        """One line: how many layers are quantised, and the bytes of their weights."""
        changed = sum(not layer.is_kept for layer in self.layers)
        return (f"{self.scheme}: {changed} of {len(self.layers)} layers quantised, weights "
                f"{self.bytes_before / 1e6:.1f} -> {self.bytes_after / 1e6:.1f} MB")

    def __str__(self) -> str:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(title=self.summary(), title_justify="left", box=None, pad_edge=False)
        for number, name in enumerate(_COLUMNS):
            table.add_column(name, justify="right" if number in _NUMERIC else "left")
        for layer in self.layers:
            table.add_row(*map(Text, layer.row()))
        stream = io.StringIO()
        Console(file=stream, width=160, highlight=False, color_system=None).print(table)
        return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())

    def to_dict(self) -> dict[str, Any]:
        """The report as values of JSON."""
        return {"scheme": self.scheme, "bytes_before": self.bytes_before,
                "bytes_after": self.bytes_after,
                "layers": [{**dataclasses.asdict(layer), "shape": list(layer.shape)}
                           for layer in self.layers]}

    def to_html(self) -> str:
        """The report as a page without other files."""
        from weft.compiler.report.page import html_page, html_table

        title = f"Quantisation: {self.scheme}"
        return html_page(title, html_table(_COLUMNS, [layer.row() for layer in self.layers],
                                           _NUMERIC), self.summary())
