"""External links of pages: what does not answer is named, at its line."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tools.site.links import Link, check, read, report


class _Handler(BaseHTTPRequestHandler):
    """``/good`` is there, ``/old`` has moved for good, all else is missing."""

    def do_GET(self) -> None:
        moved = self.path == "/old"
        self.send_response(301 if moved else 200 if self.path == "/good" else 404)
        if moved:
            self.send_header("Location", "/good")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.skipif(importlib.util.find_spec("sphinx") is None, reason="make docs-test has Sphinx")
def test_links_are_asked(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "conf.py").write_text('extensions = ["myst_parser"]\n')
    (docs / "index.md").write_text(
        f"# Page\n\n[good]({address}/good)\n\n[old]({address}/old)\n\n[gone]({address}/gone)\n")
    found = {link.uri.rpartition("/")[2]: link for link in check(docs, tmp_path / "out", 120)}
    assert {name: link.status for name, link in found.items()} == {
        "good": "working", "old": "redirected", "gone": "broken"}
    assert report(list(found.values())) == 1
    shown = capsys.readouterr().out
    assert f"index.md:7: broken {address}/gone" in shown
    assert f"index.md:5: redirected {address}/old" in shown
    assert "3 links, 1 broken, 1 moved" in shown


def line(status: str, uri: str) -> str:
    return json.dumps({"filename": "a.md", "lineno": 3, "status": status, "code": 0, "uri": uri,
                       "info": ""})


def test_results_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    links = read("\n".join([line("local", "b.md"), line("working", "https://a"),
                            line("timeout", "https://b")]))
    assert links == [Link("a.md", 3, "working", 0, "https://a", ""),
                     Link("a.md", 3, "timeout", 0, "https://b", "")]
    assert report(links) == 1
    assert report(links[:1]) == 0
    assert report(links[1:]) == 2
    assert capsys.readouterr().out.endswith("is there a network?\n")
