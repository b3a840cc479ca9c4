"""Writing artifacts."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tests.unit.runtime.programs import C, expected, manifest, objects, sample
from weft.export import artifact, export_artifact
from weft.runtime.artifact import load
from weft.support.errors import ArtifactError


def test_equal_modules_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.weft", "b.weft"):
        export_artifact(tmp_path / name, manifest(), objects(), C)
    assert (tmp_path / "a.weft").read_bytes() == (tmp_path / "b.weft").read_bytes()


def test_an_existing_file_is_replaced_under_a_loaded_module(tmp_path: Path) -> None:
    path = tmp_path / "net.weft"
    export_artifact(path, manifest(), objects(), C)
    before = load(path)
    export_artifact(str(path), manifest(), objects(), np.zeros_like(C))
    np.testing.assert_array_equal(before(sample()), expected(sample()))
    np.testing.assert_array_equal(load(path)(sample()), 2 * sample())


def test_readable_by_those_whom_the_umask_allows(tmp_path: Path) -> None:
    path = tmp_path / "net.weft"
    umask = os.umask(0o027)
    try:
        export_artifact(path, manifest(), objects(), C)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifact, "write_archive", full)
    with pytest.raises(ArtifactError, match="No space left"):
        export_artifact(tmp_path / "net.weft", manifest(), objects(), C)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written"):
        export_artifact(tmp_path / "none" / "net.weft", manifest(), objects(), C)


@pytest.mark.parametrize("constants", [b"", np.empty(0, np.float32)])
def test_a_module_without_weights(tmp_path: Path, constants: bytes | np.ndarray) -> None:
    path = tmp_path / "net.weft"
    bare = artifact.replace(manifest(), constants=(), constants_bytes=0, steps=())
    export_artifact(path, bare, objects(), constants)
    assert load(path).manifest.constants_bytes == 0
