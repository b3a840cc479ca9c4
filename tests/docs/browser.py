"""Looks at the pages of the site in Chromium, at the widths of a phone and a desk, light and dark.

``python -m tests.docs.browser [SITE] [--shots FOLDER] [PAGE ...]`` names every page that is wider
than its window, every text that cannot be told from its ground, and every word that the search
does not find. ``SITE`` is ``out/site``; without pages, all but those of single operators and names.
"""

from __future__ import annotations

import argparse
import functools
import html
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

WIDTHS = (390, 1280)
THEMES = ("light", "dark")
CONTRAST = 4.5  # of text and ground, as the guidelines for the web ask
# What people look for, and a page that the search gives for it.
WORDS = {"softmax": "operators/nn.softmax", "int4": "quantization",
         "E0500": "reference/errors/E0500", "microkernel": "tutorials/fast_gemm",
         "WEFT_THREADS": "reference/settings"}
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

# Loads each page in a frame of each width, in each theme, and writes down what is wrong with it.
_HARNESS = """<body style="margin:0"><script>
const jobs = %s, limit = %s, found = [];
const luminance = rgb => rgb.slice(0, 3).map(v => v / 255).map(
  v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
function ground(one, style) {
  for (; one; one = one.parentElement) {
    const rgb = numbers(style(one).backgroundColor);
    if (rgb.length === 3 || rgb[3] > 0.5) return rgb;
  }
  return [255, 255, 255];
}
function look(frame, job) {
  const doc = frame.contentDocument, style = one => frame.contentWindow.getComputedStyle(one);
  const root = doc.documentElement, told = { ...job, wide: [], faint: [] };
  if (root.scrollWidth > job.width)
    for (const one of doc.body.querySelectorAll("*")) {
      const box = one.getBoundingClientRect();
      if (box.width && box.right > job.width + 1 && !one.closest("pre, .table-wrapper, aside"))
        told.wide.push(one.tagName + " " + one.textContent.trim().slice(0, 60));
    }
  const seen = new Set();
  const texts = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const one = texts.currentNode.parentElement, text = texts.currentNode.textContent.trim();
    if (!text || !one.getClientRects().length || one.closest("script, style, svg")) continue;
    const color = style(one).color, back = ground(one, style), key = color + back;
    if (seen.has(key)) continue;
    seen.add(key);
    const [a, b] = [luminance(numbers(color)), luminance(back)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < limit)
      told.faint.push(`${contrast.toFixed(1)} ${color} on ${back}: ${text.slice(0, 60)}`);
  }
  if (root.scrollWidth > job.width && !told.wide.length) told.wide.push("the page");
  if (told.wide.length || told.faint.length) found.push(told);
}
async function all() {
  const frame = document.createElement("iframe");
  frame.style = "border:0;height:900px";
  document.body.append(frame);
  for (const job of jobs) {
    frame.style.width = job.width + "px";
    const url = new URL(job.page, location.href).href;
    if (frame.dataset.page !== job.page) {
      const loaded = new Promise(done => frame.onload = done);
      frame.src = url;
      frame.dataset.page = job.page;
      await loaded;
    }
    frame.contentDocument.body.dataset.theme = job.theme;
    look(frame, job);
  }
  document.title = "done " + JSON.stringify(found);
}
all().catch(error => document.title = "done " + JSON.stringify([{ page: String(error) }]));
</script>"""


class _Handler(SimpleHTTPRequestHandler):
    """Files of the site, and the page that looks at them."""

    harness = ""

    def do_GET(self) -> None:
        if self.path != "/_look":
            super().do_GET()
            return
        data = self.harness.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


@contextmanager
def served(site: Path, harness: str = "") -> Iterator[str]:
    """The address of a server of ``site`` on loopback."""
    handler = type("Handler", (_Handler,), {"harness": harness})
    with ThreadingHTTPServer(("127.0.0.1", 0),
                             functools.partial(handler, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


def chromium(*words: str, timeout: float = 300) -> str:
    """What headless Chromium prints."""
    assert CHROMIUM is not None, "there is no Chromium"
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", *words],
            capture_output=True, text=True, timeout=timeout, check=True)
    return done.stdout


def faults(site: Path, pages: Sequence[str], widths: Sequence[int] = WIDTHS) -> list[str]:
    """What is wrong with the pages, a line for each page, width and theme."""
    jobs = [{"page": page, "width": width, "theme": theme}
            for page in pages for width in widths for theme in THEMES]
    with served(site, _HARNESS % (json.dumps(jobs), CONTRAST)) as address:
        shown = chromium("--virtual-time-budget=600000", "--dump-dom", f"{address}/_look")
    (title,) = re.findall("<title>done (.*?)</title>", shown, re.DOTALL)
    return [": ".join([f"{one['page']} ({one.get('width')} pixels, {one.get('theme')})",
                       *one.get("wide", [])[:3], *one.get("faint", [])[:3]])
            for one in json.loads(html.unescape(title))]


def missed(site: Path) -> list[str]:
    """Words for which the search in the files themselves, without a server, misses a page."""
    lines = []
    for word, page in WORDS.items():
        shown = chromium("--virtual-time-budget=8000", "--dump-dom",
                         f"file://{site / 'search.html'}?q={quote(word)}")
        if f'href="{page}.html' not in shown:
            lines.append(f"the search for {word} does not give {page}")
    return lines


def shoot(site: Path, pages: Sequence[str], folder: Path, height: int = 1400) -> None:
    """Pictures of pages, in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in pages:
        for width in WIDTHS:
            for theme in THEMES:
                frame = (f'<body style="margin:0"><iframe src="{page}" onload="this.contentDocument'
                         f".body.dataset.theme='{theme}'\" style=\"border:0;width:{width}px;"
                         f'height:{height}px"></iframe>')
                name = f"{page.removesuffix('.html').replace('/', '-')}-{width}-{theme}.png"
                with served(site, frame) as address:
                    chromium("--virtual-time-budget=4000", f"--screenshot={folder / name}",
                             f"--window-size={max(width, 500)},{height}", f"{address}/_look")


def usual_pages(site: Path) -> list[str]:
    """All pages but those of single operators, and of the sources."""
    names = (path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html")))
    return [name for name in names if not re.match(r"_|operators/(?!README|nn\.conv2d\.)", name)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, nargs="?", default=Path("out/site"))
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--shots", type=Path, metavar="FOLDER")
    asked = parser.parse_args()
    site = asked.site.resolve()
    pages = asked.pages or usual_pages(site)
    if asked.shots:
        shoot(site, pages, asked.shots)
        return 0
    lines = [*faults(site, pages), *([] if asked.pages else missed(site))]
    print(*lines, f"{len(pages)} pages, {len(lines)} faults", sep="\n")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
