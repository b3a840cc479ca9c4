"""docs/cuda.md names all passes and architectures."""

from __future__ import annotations

import re

from tests.docs.coverage_page import ROOT
from weft.codegen.cuda.passes import CUDA_PIPELINE
from weft.target.cuda_target import ARCHS

PAGE = ROOT / "docs" / "cuda.md"


def test_the_page_names_the_passes_and_the_architectures():
    text = PAGE.read_text(encoding="utf-8")
    passes = [p.__name__ for p in CUDA_PIPELINE if ".gpu." in p.__module__]
    assert [name for name in re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)
            if name in passes] == passes
    assert all(f"`{arch}`" in text for arch in ARCHS)
