"""``python -m tools.site.versions``: the documentation of all versions side by side.

``out/versions/latest`` is the site of this checkout, ``out/versions/1.0`` that of the newest tag
``v1.0.*``, built from the sources of the tag. ``versions.js`` names the versions with their pages;
the sidebar of every page offers them (``docs/_static/versions.js``), also where pages are read
from files.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "out" / "versions"
LATEST = "latest"
_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")
_START = """<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={0}/index.html">
<title>weft</title>
<a href="{0}/index.html">weft</a>
"""


def newest_patches(tags: Iterable[str]) -> dict[str, str]:
    """The tag of the newest patch of each minor version, by its name, newest first."""
    newest: dict[tuple[int, int], int] = {}
    for found in filter(None, map(_TAG.fullmatch, tags)):
        major, minor, patch = map(int, found.groups())
        newest[major, minor] = max(patch, newest.get((major, minor), 0))
    return {f"{major}.{minor}": f"v{major}.{minor}.{patch}"
            for (major, minor), patch in sorted(newest.items(), reverse=True)}


def build(source: Path, out: Path) -> None:
    """Build the site of a tree of sources with the code of that tree; warnings are errors."""
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto",
                    "docs", str(out)], cwd=source, check=True,
                   env={**os.environ, "PYTHONPATH": os.pathsep.join(
                       filter(None, [str(source), os.environ.get("PYTHONPATH")]))})


def unpack(tag: str, folder: Path, root: Path = ROOT) -> None:
    """Write the sources of a tag into ``folder``."""
    packed = subprocess.run(["git", "archive", tag], cwd=root, check=True, capture_output=True)
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")


def write_start(out: Path, names: Iterable[str]) -> None:
    """Write the list of versions, and a first page that leads to the latest one."""
    versions = [{"name": name, "pages": sorted(page.relative_to(out / name).as_posix()
                                               for page in (out / name).rglob("*.html"))}
                for name in names]
    (out / "versions.js").write_text(f"window.WEFT_VERSIONS = {json.dumps(versions)};\n", "utf-8")
    (out / "index.html").write_text(_START.format(LATEST), "utf-8")


def main() -> None:
    listed = subprocess.run(["git", "tag"], cwd=ROOT, check=True, capture_output=True, text=True)
    tags = newest_patches(listed.stdout.split())
    build(ROOT, OUT / LATEST)
    for name, tag in tags.items():
        with tempfile.TemporaryDirectory() as folder:
            unpack(tag, Path(folder))
            build(Path(folder), OUT / name)
    write_start(OUT, [LATEST, *tags])


if __name__ == "__main__":
    main()
