"""Writes docs/operators: one page for each operator, and an index.

``python -m tools.operator_pages`` brings the pages up to date; it needs onnx and torch, whose
operators the pages name.
"""

from __future__ import annotations

from pathlib import Path

import weft.op  # noqa: F401 - registers the operators
from tools.sharding_page import sharding_page
from weft.cli.operator_page import cell, page_of, signature
from weft.cli.operator_uses import onnx_names, torch_names
from weft.ir.op import OPS

FOLDER = Path(__file__).parents[1] / "docs" / "operators"
_INDEX = """\
# Operators

{count} operators. These pages are written from the records of the operators by
`python -m tools.operator_pages`; `weft ops NAME` shows the same on a terminal, `weft ops WORD`
searches. How to add one: [tutorial](../tutorials/add_operator.md).
How they are cut over devices: [table](sharding.md).

| operator | what it computes |
|---|---|
"""


def pages() -> dict[str, str]:
    """The text of every page by file name."""
    uses = {"ONNX": onnx_names(), "torch": torch_names()}
    own = [OPS.get(name) for name in OPS if is_own(name)]
    written = {f"{op.name}.md": page_of(op, uses) for op in own}
    rows = (f"| [`{signature(op)}`]({op.name}.md) | {cell(op.doc.splitlines()[0])} |\n"
            for op in own)
    return {"README.md": _INDEX.format(count=len(own)) + "".join(rows),
            "sharding.md": sharding_page(own), **written}


def is_own(name: str) -> bool:
    """Whether weft itself defines the operator (tests and plug-ins define others)."""
    return getattr(OPS.get(name).compute, "__module__", "").startswith("weft.")


def main() -> None:
    """Write what has changed, and remove pages of operators that are gone."""
    FOLDER.mkdir(exist_ok=True)
    written = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"{len(written) - 2} operators")


if __name__ == "__main__":
    main()
