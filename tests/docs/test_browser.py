"""The look at pages in a browser finds what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.browser import CHROMIUM, faults, usual_pages

PAGE = '<body style="margin:0"><p style="width:{}px">wide</p><p style="color:{}">faint</p>'
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


def test_wide_pages_and_faint_texts_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.html").write_text(PAGE.format(600, "#ccc"), "utf-8")
    (tmp_path / "good.html").write_text(PAGE.format(300, "#555"), "utf-8")
    found = faults(tmp_path, usual_pages(tmp_path))
    assert found == [
        "bad.html (390 pixels, light): P wide: 1.6 rgb(204, 204, 204) on 255,255,255: faint",
        "bad.html (390 pixels, dark): P wide: 1.6 rgb(204, 204, 204) on 255,255,255: faint",
        "bad.html (1280 pixels, light): 1.6 rgb(204, 204, 204) on 255,255,255: faint",
        "bad.html (1280 pixels, dark): 1.6 rgb(204, 204, 204) on 255,255,255: faint"]
