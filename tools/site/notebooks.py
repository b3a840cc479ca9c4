"""Tutorials as notebooks: the same text and code, with what the code prints.

``python -m tools.site.notebooks [--run] [PAGE ...]`` writes them into ``out/notebooks``; ``--run``
runs each with nbclient, in a folder of its own, and compares what its cells print with the page.

A file that the page imports, or names, is a cell ``%%writefile``, and the next cell imports it. A
cell whose block shows an error of weft is marked, so that ``Run all`` goes on behind it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.docs.tutorials import BLOCK, FOLDER, ROOT

Cell = dict[str, Any]
_LINK = re.compile(r"!?\[([^\]]*)\]\((?!https?:)[^)]*\)")
_FILES = re.compile(r"^Save each block under .*?\n\n", re.MULTILINE | re.DOTALL)
_ERROR = re.compile(r"^E\d{4} ", re.MULTILINE)
_COLOR = re.compile(r"\x1b\[[\d;]*m")  # programs that a kernel starts believe in a terminal
_KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
           "language_info": {"name": "python"}}


def has_notebook(text: str) -> bool:
    """Whether a page is a notebook, too: packages and installed projects are none."""
    files = [found["file"] for found in BLOCK.finditer(text)]
    return bool(files) and not any("/" in file for file in files) and "```toml\n" not in text


def notebook(text: str) -> dict[str, Any]:
    """The notebook of a tutorial's page."""
    blocks = list(BLOCK.finditer(text))
    cells: list[Cell] = []
    start = 0
    for found in blocks:
        cells += _prose(text[start:found.start()])
        cells += _code(found, text)
        start = found.end()
    cells += _prose(text[start:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": _KERNEL, "cells": cells}


def _prose(text: str) -> list[Cell]:
    """A cell of text, whose links to other pages are words: a notebook stands alone.

    What a page says of saving its blocks as files is left out.
    """
    text = _LINK.sub(r"\1", _FILES.sub("", text)).strip()
    return [{"cell_type": "markdown", "metadata": {}, "source": text}] if text else []


def _code(found: re.Match[str], page: str) -> list[Cell]:
    file, source, printed = found["file"], found["source"].rstrip("\n"), found["printed"] or ""
    stem = file.removesuffix(".py")
    if found["language"] != "python":
        return [_cell(f"%%writefile {file}\n{found['mark']} {file}\n{source}", f"Writing {file}\n")]
    if re.search(rf"^(from|import) {stem}\b|\"{file}\"|\b{file}:\d", page, re.MULTILINE):
        return [_cell(f"%%writefile {file}\n{found['mark']} {file}\n{source}", f"Writing {file}\n"),
                _cell(f"import {stem}", printed)]
    return [_cell(source, printed)]


def _cell(source: str, printed: str) -> Cell:
    outputs = [{"output_type": "stream", "name": "stdout", "text": printed}] if printed else []
    tags = {"tags": ["raises-exception"]} if _ERROR.search(printed) else {}
    return {"cell_type": "code", "metadata": tags, "source": source, "outputs": outputs,
            "execution_count": None}


def printed_by(cell: Cell) -> str:
    """What a cell has printed, and the message of the error that it ended with."""
    return _COLOR.sub("", "".join(
        one["text"] if one["output_type"] == "stream" else f"{one['evalue']}\n"
        for one in cell.get("outputs", ())
        if one.get("name") == "stdout" or one["output_type"] == "error"))


def write(folder: Path) -> dict[str, dict[str, Any]]:
    """Write the notebooks of all tutorials; they are returned by name."""
    made = {page.stem: notebook(text) for page in sorted(FOLDER.glob("*.md"))
            if has_notebook(text := page.read_text("utf-8"))}
    folder.mkdir(parents=True, exist_ok=True)
    for name, one in made.items():
        (folder / f"{name}.ipynb").write_text(json.dumps(one, indent=1) + "\n", "utf-8")
    return made


def differences(one: dict[str, Any]) -> list[str]:
    """Run a notebook; a line for each cell that prints something else than the page says."""
    import nbformat
    from nbclient import NotebookClient

    shown = [printed_by(cell) for cell in one["cells"]]
    with tempfile.TemporaryDirectory() as folder:
        paths = [folder, str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths),
                       "WEFT_CACHE_DIR": f"{folder}/.cache"}
        ran = nbformat.from_dict(json.loads(json.dumps(one)))
        NotebookClient(ran, timeout=300, resources={"metadata": {"path": folder}}).execute(
            env=environment)
        printed = [printed_by(cell).replace(f"{folder}/", "") for cell in ran["cells"]]
    return [f"  cell {number} prints\n{new}instead of\n{old}"
            for number, (old, new) in enumerate(zip(shown, printed, strict=True)) if old != new]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*")
    parser.add_argument("--run", action="store_true")
    asked = parser.parse_args()
    made = write(ROOT / "out" / "notebooks")
    wrong = 0
    for name in asked.pages or made if asked.run else ():
        found = differences(made[name])
        wrong += bool(found)
        print(f"{name}: {'differs' if found else 'as shown'}", *found, sep="\n", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
