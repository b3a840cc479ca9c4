"""docs/cuda.md: its programs give what it says."""

from __future__ import annotations

import doctest
import re

from tests.docs.coverage_page import ROOT
from weft.codegen.cuda.passes import CUDA_PIPELINE
from weft.target.cuda_target import ARCHS

PAGE = ROOT / "docs" / "cuda.md"


def test_the_programs_of_the_page_run():
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, PAGE.name, str(PAGE), 0)
    failures: list[str] = []
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    doctest.DocTestRunner(optionflags=flags).run(test, out=failures.append)
    assert not failures, "".join(failures)


def test_the_page_names_the_passes_and_the_architectures():
    text = PAGE.read_text(encoding="utf-8")
    passes = [p.__name__ for p in CUDA_PIPELINE if ".gpu." in p.__module__]
    assert [name for name in re.findall(r"^\| `(\w+)` \| ", text, re.MULTILINE)
            if name in passes] == passes
    assert all(f"`{arch}`" in text for arch in ARCHS)
