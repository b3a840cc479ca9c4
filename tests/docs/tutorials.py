"""Tutorials as programs: their blocks of code are files, the blocks of text what these print.

``python -m tests.docs.tutorials`` runs every page and writes what its files print now into it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"^```(?P<language>python|c|cpp|js)\n(?P<mark>#|//) (?P<file>[\w/.-]+)\n"
                    r"(?P<source>.*?)^```\n(?:\n```text\n(?P<printed>.*?)^```\n)?",
                    re.MULTILINE | re.DOTALL)
_END = "---- end of a file ----"
# Imports each module once, in order; an error of weft is part of what a page shows.
_DRIVER = f"""
import importlib, sys
import weft
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except weft.WeftError as error:
        print(error)
    print({_END!r}, flush=True)
"""


@dataclass(frozen=True)
class Block:
    """A file of a page, and what the page says that it prints; ``mark`` begins a comment."""

    file: str
    source: str
    printed: str
    mark: str = "#"


def read_blocks(text: str) -> list[Block]:
    return [Block(m["file"], m["source"], m["printed"] or "", m["mark"])
            for m in BLOCK.finditer(text)]


def run_page(text: str, folder: Path) -> list[str]:
    """What each block prints, run in one fresh process outside the package."""
    blocks = read_blocks(text)
    for block in blocks:
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{block.mark} {block.file}\n{block.source}", encoding="utf-8")
    _install(text, folder)
    names = [b.file.removesuffix(".py") for b in blocks if b.file.endswith(".py")
             and "/" not in b.file]
    paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths),
                   "WEFT_CACHE_DIR": str(folder / ".cache")}
    done = subprocess.run([sys.executable, "-c", _DRIVER, *names], cwd=folder, env=environment,
                          capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    printed = done.stdout.replace(f"{folder}/", "").split(f"{_END}\n")
    outputs = iter(printed)
    return [next(outputs) if b.file.removesuffix(".py") in names else "" for b in blocks]


def _install(text: str, folder: Path) -> None:
    """What an installer leaves of the page's pyproject.toml: the metadata beside the package."""
    for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        project = tomllib.loads(block)["project"]
        info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        (info / "entry_points.txt").write_text("".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
            for group, entries in project["entry-points"].items()))


def with_outputs(text: str, printed: list[str]) -> str:
    """The page with what its files print now."""
    outputs: Iterator[str] = iter(printed)

    def block(found: re.Match[str]) -> str:
        shown = next(outputs)
        source = f"```{found['language']}\n{found['mark']} {found['file']}\n{found['source']}```\n"
        return source + (f"\n```text\n{shown}```\n" if shown else "")

    return BLOCK.sub(block, text)


def with_examples(text: str) -> str:
    """The page with the files of ``examples`` as they are now."""
    def block(found: re.Match[str]) -> str:
        example = ROOT / "examples" / found["file"]
        if not example.exists():
            return found[0]
        return f"```python\n# {found['file']}\n{example.read_text(encoding='utf-8')}```\n"

    return BLOCK.sub(block, text)


def main() -> None:
    for page in sorted(FOLDER.glob("*.md")):
        text = with_examples(page.read_text(encoding="utf-8"))
        with tempfile.TemporaryDirectory() as folder:
            page.write_text(with_outputs(text, run_page(text, Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
