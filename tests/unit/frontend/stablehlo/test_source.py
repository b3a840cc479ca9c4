"""How files of StableHLO are opened and told apart in caches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.frontend.stablehlo.programs import PROGRAMS
from weft.frontend.source import SourceDigest, open_source
from weft.frontend.stablehlo.registry import CONVERTERS
from weft.frontend.stablehlo.source import StableHloFile
from weft.support.errors import InvalidModelError, OptionError


class Options:
    input_shapes = None
    outputs = None
    placement_names: dict[str, str] = {}  # noqa: RUF012 - as the protocol has it


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    before = dict(CONVERTERS.entries)
    yield
    CONVERTERS.entries = before


def _digest(path: Path) -> SourceDigest | str:
    source = open_source(path, None, Options())
    assert isinstance(source, StableHloFile)
    return source.digest()


def test_a_digest_follows_the_content(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.mlir" for name in "abc"]
    for path, program in zip(paths, (PROGRAMS[0], PROGRAMS[0], PROGRAMS[1]), strict=True):
        path.write_text(program.text)
    first, same, other = map(_digest, paths)
    assert isinstance(first, SourceDigest)
    assert isinstance(same, SourceDigest)
    assert isinstance(other, SourceDigest)
    assert first.text == same.text != other.text
    assert b"stablehlo.add" in first.operators


def test_converters_of_the_user_have_no_digest(tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_text(PROGRAMS[0].text)
    weft.stablehlo_converter("@scale")(lambda node, x: x)
    assert "converters of the user" in str(_digest(tmp_path / "a.mlir"))


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.mlir"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidModelError, match="cannot be read"):
        weft.compile(path)
    with pytest.raises(OptionError, match="for functions"):
        weft.compile(path, example_inputs=(np.ones(2),))
