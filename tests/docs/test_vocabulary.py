"""One word for one meaning: names that weft must not use, in code and in documents.

Kernels and schedules are described in the terms of BLIS, oneDNN, Halide and TVM, so that a reader
who knows these can search for what he knows. Each pattern below is a term for which there is an
established one; ``ALLOWED`` lists the homonyms, which mean something else.
"""

from __future__ import annotations

import functools
import re

import pytest

from tests.docs.coverage_page import ROOT

# Pattern -> the term to use.
OLD_TERMS = {
    r"\bProduct(Size|Plan)\b|product_(plan|schedule)|plan_product": "GEMM: GemmShape, m, n, k",
    r"slice_depth|_schedule_(parts|slices)": "kc; split-K; K-blocking",
    r"tile_in_registers": "register blocking, microkernel",
    r"near panel|copied near": "packed B panel",
    r"minimal filtering|fewer products|at the points|winograd_(rows|columns)": "Winograd, F(m, r)",
    r"\bin_pieces\b|\bpieces\b": "legal vector widths; chunks; blocks",
    r"\b_?turned\b": "transposed",
    r"\bWords\b": "i32 bit-vector",
    r"\borders_in\b": "comparison, predicate",
    r"\bcombine_lanes\b": "horizontal reduction",
    r"\bborrowed\b": "aliased storage",
    r"\bjournal\b": "schedule trace",
    r"\bopen (sizes?|inputs?)\b": "dynamic shapes, symbolic dimensions",
    r"data decides": "data-dependent shapes",
    r"layout_prices|\bprices?\b": "layout cost",
    r"attention_rows": "decode attention",
    r"\bsum_type\b|\b_?widened\b": "accumulator dtype; upcast",
    r"\bbands?\b(?!\")|\bstaged\b|axis_parts": "row block; resampling stages; axis split",
    r"layout_(as|is) written": "original layout",
    r"[Tt]his is no \w+|\bhas no name\b": "name the problem",
    r"\bstanding (variables|loops)\b": "enclosing loop variables",
    r"\b(WORTH|EXPOSED|UNEVEN)\b": "minimum speedup; unhidden fraction; load imbalance",
    r"\b(lives|dies)\b": "live range; last use",
    r"what a loop finds": "loop-carried values, loop invariants",
    r"\bnobody\b|nothing has\b|that nothing\b": "say who does what",
}
# Path -> patterns that mean something else there, each with its meaning.
ALLOWED: dict[str, dict[str, str]] = {
    "weft/compat/graphdef/ops/array.py": {
        r"\bbands?\b|\bstaged\b|axis_parts": "TensorFlow's name of the result of MatrixBandPart",
    },
}

PAGES = [*(page for folder in ("docs", "docs/tutorials", "docs/guides")
           for page in sorted((ROOT / folder).glob("*.md"))),
         ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
SOURCES = [path for folder in ("weft", "examples", "tools", "benchmarks")
           for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
def texts() -> dict[str, str]:
    """All pages and sources by their paths."""
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
            for path in (*PAGES, *SOURCES)}


@pytest.mark.parametrize("pattern", OLD_TERMS, ids=lambda p: OLD_TERMS[p])
def test_terms_are_the_field_s_own(pattern: str) -> None:
    found = []
    for name, text in texts().items():
        if pattern in ALLOWED.get(name, {}) or not re.search(pattern, text, re.MULTILINE):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line):
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, f"say: {OLD_TERMS[pattern]}\n" + "\n".join(found)
