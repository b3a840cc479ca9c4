"""Artifacts of every released format are loaded, as if no native code fitted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.export.stored_programs import FOLDER, arrays, modules, written
from weft.runtime import artifact
from weft.runtime.artifact_contents import VERSION
from weft.support.errors import ArtifactError

STORED = sorted(FOLDER.glob("*/*.json"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_portable_form_gives_the_results_of_its_release(path: Path, tmp_path: Path) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    file = written(tmp_path / "m.weft", stored)
    with pytest.raises(ArtifactError, match="no native code"):
        artifact.load(file)
    with pytest.warns(weft.FallbackWarning, match="compiled again for this machine"):
        module = weft.load(file)
    feeds = dict(zip([spec.name for spec in module.inputs], arrays(stored["inputs"]), strict=True))
    for found, wanted in zip(module.run(None, feeds), arrays(stored["results"]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_present_format_is_stored() -> None:
    """A change of the format adds files; ``python -m tests.unit.export.stored_programs``."""
    assert {path.stem for path in STORED if path.parent.name == f"format-{VERSION}"} >= {
        name for name, _, _ in modules()}
