"""One self-contained HTML page about a compilation: kernels, decisions, graph and stages."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.report.placement import lanes_svg, measured_bars
from weft.compiler.report.sizes import (
    ESTIMATE,
    arena_bytes_at,
    at_sizes,
    kernel_rows,
    symbol_rows,
    typical_shape,
    typical_sizes,
)
from weft.compiler.stages import stages_of
from weft.runtime.launchers import launcher_of
from weft.support import progress
from weft.support.config import config
from weft.support.markup import beginning, html_table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem;
       color: #1c2430; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100%; font-size: .85rem }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #d9dee5;
  vertical-align: top; overflow-wrap: anywhere }
th, td:first-child, td.n { white-space: nowrap; overflow-wrap: normal }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
tr:hover td { background: #f1f5fa }
pre { overflow: auto; max-height: 34rem; background: #f6f8fa; padding: .8rem; font-size: .8rem;
      line-height: 1.35 }
summary { cursor: pointer; font-weight: 600; padding: .3rem 0 }
.drawing { overflow: auto; max-height: 48rem; border: 1px solid #d9dee5 }
.lanes text { font: 11px ui-monospace, monospace; fill: currentColor }
.lanes .kernel { fill: #4a7ebb } .lanes .copy { fill: #c98a2b }
.graph text { font: 11px ui-monospace, monospace; text-anchor: middle; fill: #1c2430 }
.graph rect { fill: #fff; stroke: #8595a8 } .graph .input rect { fill: #e3edf8 }
.graph .kernel rect { fill: #e6f3e6 } .graph .control rect { fill: #fbeedb }
.graph .result rect { fill: #eee } .graph .edge { fill: none; stroke: #8595a8 }
@media (prefers-color-scheme: dark) {
  body { color: #dbe2ea; background: #14181d } pre { background: #1d232a }
  th, td { border-color: #323b45 } tr:hover td { background: #222a33 }
}
"""


# Characters of one stage; browsers render pages of many MB slowly.
MAX_STAGE_CHARS = 60_000


def html_report(module: Any, *, title: str, opened: str | None = None) -> str:
    """The page for a compiled model, whose kernels are timed on random inputs.

    The stage ``opened`` is unfolded; long stages are cut (``MAX_STAGE_CHARS``).
    """
    stages: dict[str, str] = {}
    names = stages_of(module.options.target)
    with progress.task("rendering stages", len(names)) as task:
        for stage in names:
            stages[stage] = _stage(stage, module.as_text(stage), is_open=stage == opened)
            task.advance(stage)
    decisions = stages.pop("decisions")
    elements = [f"<h1>{html.escape(title)}</h1>", _facts(module), _symbols(module),
             "<h2>Kernels</h2>", _kernels(module), _lanes(module), "<h2>Decisions</h2>", decisions,
             "<h2>Graph</h2>", _graph(module), "<h2>Stages</h2>", *stages.values()]
    return _page(title, elements)


def html_page(title: str, body: str, summary: str = "") -> str:
    """A page of its own: a heading, a line of text, and the HTML of ``body``."""
    return _page(title, [f"<h1>{html.escape(title)}</h1><p>{html.escape(summary)}</p>", body])


def _page(title: str, elements: Sequence[str]) -> str:
    head = (f'<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style>")
    return f"<!doctype html>\n<html><head>{head}</head>\n<body>{''.join(elements)}</body></html>\n"


def _stage(name: str, text: str, *, is_open: bool) -> str:
    shown, left_out = beginning(text, MAX_STAGE_CHARS)
    note = (f"<p>{left_out} more lines: <code>weft inspect MODEL --stage {name}</code></p>"
            if left_out else "")
    return (f"<details{' open' if is_open else ''}><summary>{name}</summary>"
            f"<pre>{html.escape(shown)}</pre>{note}</details>")


def _facts(module: Any) -> str:
    manifest = module.manifest
    sizes = typical_sizes(manifest)
    rows = [("input", str(port)) for port in module.inputs]
    rows += [("output", str(port)) for port in module.outputs]
    rows += [("target", str(module.options.target)), ("calls of kernels", len(manifest.steps)),
             ("kernels", len({step.symbol for step in manifest.steps})),
             (f"arena{at_sizes(sizes)}", f"{arena_bytes_at(manifest, sizes) / 1e6:.2f} MB"),
             ("constants", f"{manifest.constants_bytes / 1e6:.2f} MB")]
    return html_table(("fact", "value"), rows)


def _symbols(module: Any) -> str:
    """The symbolic sizes, and the kernels for parts of them; empty for fixed sizes."""
    manifest = module.manifest
    if not manifest.symbols:
        return ""
    variants = html_table(("#", "operators", "sizes", "implementation", "MFLOP", ESTIMATE),
                          kernel_rows(manifest, manifest.steps), numeric=(0, 4, 5))
    at = at_sizes(typical_sizes(manifest))
    return (f"<h2>Sizes</h2>{html_table(('symbol', 'sizes', 'from'), symbol_rows(manifest))}"
            f"<p>Kernels and their variants, in the order of test; work and times"
            f"{html.escape(at)}, estimates at the typical sizes of each row:</p>{variants}")


def _lanes(module: Any) -> str:
    """The lanes of devices and links in a run; empty for a program on one device."""
    if not launcher_of(module.manifest).runs_devices_at_once:
        return ""
    profile = module.profile(*random_inputs(module), repeat=3)
    table = html.escape(module.as_text("placement"))
    return (f'<h2>Devices</h2><p>One run, of {profile.module_seconds * 1e6:.0f} us at best; '
            f'estimates below.</p><div class="drawing">{lanes_svg(measured_bars(profile.steps))}'
            f"</div><pre>{table}</pre>")


def _graph(module: Any) -> str:
    drawing = module.as_svg()
    if drawing is None:
        return "<p>Too large to draw here; <code>weft inspect --dot</code> writes the graph.</p>"
    return f'<div class="drawing">{drawing}</div>'


def random_inputs(module: Any) -> list[np.ndarray]:
    """Normally distributed inputs, from ``WEFT_SEED``; values hardly change the time.

    Symbolic sizes are typical ones.
    """
    generator = np.random.default_rng(config.seed)
    sizes = typical_sizes(module.manifest)
    return [generator.standard_normal(typical_shape(port, sizes)).astype(port.dtype)
            for port in module.inputs]


def _kernels(module: Any) -> str:
    profile = module.profile(*random_inputs(module), repeat=5)
    slowest = max((k.seconds for k in profile.kernels), default=0.0) or 1.0
    rows = []
    for number, kernel in enumerate(profile.kernels):
        rows.append((number, kernel.op, kernel.implementation, kernel.calls,
                     f"{kernel.seconds * 1e3:.3f}", f"{kernel.gflops:.1f}",
                     kernel.seconds / slowest))
    return html_table(("#", "operators", "implementation", "calls", "ms", "GFLOP/s", ""), rows,
                      (0, 3, 4, 5), bars=(6,))
