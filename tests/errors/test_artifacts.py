"""Artifacts that are damaged or foreign are refused before they are mapped."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.errors.bad_models import error_of, good_model
from weft.support.errors import ArtifactError


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("artifact") / "net.weft"
    weft.compile(good_model()).export(path)
    return path.read_bytes()


def saved(folder: Path, data: bytes) -> Path:
    path = folder / "net.weft"
    path.write_bytes(data)
    return path


def test_undamaged(artifact: bytes, tmp_path: Path) -> None:
    module = weft.load(saved(tmp_path, artifact))
    np.testing.assert_array_equal(module(np.zeros((2, 3), np.float32)), [[1, 2, 3]] * 2)


def test_missing(tmp_path: Path) -> None:
    path = tmp_path / "none.weft"
    error = error_of(lambda: weft.load(path), ArtifactError)
    assert str(path) in str(error)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x7fELF" + b"\0" * 100, b"text" * 50])
def test_foreign(data: bytes, tmp_path: Path) -> None:
    error = error_of(lambda: weft.load(saved(tmp_path, data)), ArtifactError)
    assert "net.weft" in str(error)


def test_an_onnx_model_is_no_artifact(tmp_path: Path) -> None:
    path = saved(tmp_path, good_model().SerializeToString())
    error_of(lambda: weft.load(path), ArtifactError)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_truncated(artifact: bytes, share: float, tmp_path: Path) -> None:
    path = saved(tmp_path, artifact[: int(len(artifact) * share)])
    error_of(lambda: weft.load(path), ArtifactError)


def test_every_flipped_byte_is_noticed_or_harmless(artifact: bytes, tmp_path: Path) -> None:
    """Bytes that carry nothing may change; all others are under a checksum."""
    rng = random.Random(0)
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    expected = weft.load(saved(tmp_path, artifact))(x)
    for _ in range(60):
        damaged = bytearray(artifact)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        path = saved(tmp_path, bytes(damaged))
        try:
            module = weft.load(path)
        except ArtifactError:
            continue
        np.testing.assert_array_equal(module(x), expected)
