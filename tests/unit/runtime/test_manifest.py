"""Manifests as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.runtime.programs import manifest
from weft.runtime import Manifest, TensorSpec
from weft.support.errors import ArtifactError


def test_round_trip() -> None:
    original = replace(manifest(), checksums={"lib.so": "ab"}, output_is_tuple=True)
    assert Manifest.from_json(original.to_json()) == original
    assert Manifest.from_json(original.to_json()).to_json() == original.to_json()


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    plain = json.loads(manifest().to_json())
    change(plain)
    return json.dumps(plain)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("inputs"),
        lambda m: m.update(inputs=3),
        lambda m: m["inputs"][0].update(shape=[-1]),
        lambda m: m["inputs"][0].update(shape=[1.5]),
        lambda m: m["inputs"][0].update(dtype="float33"),
        lambda m: m["inputs"][0].update(name=None),
        lambda m: m["target"].update(features=[1]),
        lambda m: m.update(arena_bytes=-1),
        lambda m: m.update(arena_bytes=1 << 60),
        lambda m: m.update(arena_bytes=True),
        lambda m: m["steps"][0].update(args=[["input", 1]]),
        lambda m: m["steps"][0].update(args=[["stack", 0]]),
        lambda m: m["steps"][0].update(args=[["arena", 1 << 40]]),
        lambda m: m["steps"][0].update(args=[[["input"], 0]]),
        lambda m: m["constants"][0].update(offset=1 << 40),
        lambda m: m["checksums"].update(a=1),
    ],
)
def test_damage_is_found(change: Callable[[dict[str, Any]], object]) -> None:
    with pytest.raises(ArtifactError):
        Manifest.from_json(edited(change))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "{}", b"\xff\xfe", "[" * 100_000])
def test_what_is_no_manifest(text: str | bytes) -> None:
    with pytest.raises(ArtifactError):
        Manifest.from_json(text)


def test_another_version_is_named() -> None:
    with pytest.raises(ArtifactError, match="version 3") as caught:
        Manifest.from_json(edited(lambda m: m.update(format_version=1)))
    assert caught.value.got == "1"


def test_symbolic_sizes_are_not_concrete() -> None:
    spec = TensorSpec("x", "float32", ("batch", 3))
    assert str(spec) == "x: Tensor[('batch', 3), float32]"
    with pytest.raises(ArtifactError, match="symbolic dimension"):
        spec.concrete_shape
