"""Loading artifacts, whole and damaged."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.runtime.programs import C, code, expected, manifest, sample
from weft.export import export_artifact
from weft.runtime import Manifest, launchers
from weft.runtime.artifact import load
from weft.runtime.artifact_contents import manifest_digest
from weft.runtime.artifact_format import digest, locate_members
from weft.runtime.launchers import check_machine
from weft.runtime.manifest import TargetSpec
from weft.support.errors import ArtifactError

MANIFEST, LIBRARY = "native/main/code/manifest.json", "native/main/code/lib.so"
MEMBERS = ("artifact.json", "constants.bin", MANIFEST, LIBRARY)


def written(folder: Path, described: Manifest | None = None) -> Path:
    path = folder / "net.weft"
    export_artifact(path, described or manifest(), code(), C)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return written(tmp_path_factory.mktemp("artifact")).read_bytes()


@pytest.mark.parametrize("map_constants", [True, False])
def test_the_same_numbers(tmp_path: Path, map_constants: bool) -> None:
    module = load(written(tmp_path), map_constants=map_constants)
    np.testing.assert_array_equal(module(sample()), expected(sample()))
    assert module.manifest.steps == manifest().steps


def test_weights_are_used_where_they_lie_in_the_file(tmp_path: Path) -> None:
    path = written(tmp_path)
    with path.open("rb") as file:
        extents = locate_members(file, path.stat().st_size)
    assert set(extents) == set(MEMBERS)
    assert all(start % 64 == 0 for start, _ in extents.values())
    module = load(path)
    assert not module.launcher.constants.flags.owndata
    assert str(path) in Path("/proc/self/maps").read_text()


def test_any_zip_tool_can_look_inside(tmp_path: Path) -> None:
    with zipfile.ZipFile(written(tmp_path)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted(MEMBERS)


def test_a_process_without_a_compiler_runs_it(tmp_path: Path) -> None:
    path = written(tmp_path)
    np.save(tmp_path / "x.npy", sample())
    program = (
        "import sys, numpy as np\n"
        "from weft.runtime.artifact import load\n"
        f"y = load({str(path)!r})(np.load({str(tmp_path / 'x.npy')!r}))\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, y)\n"
        "bad = {'llvmlite', 'numba', 'onnx', 'weft.ir', 'weft.codegen'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected(sample()))


def refused(folder: Path, data: bytes) -> ArtifactError:
    path = folder / "damaged.weft"
    path.write_bytes(data)
    with pytest.raises(ArtifactError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    return caught.value


def test_truncated_anywhere(whole: bytes, tmp_path: Path) -> None:
    for size in [0, 1, 3, 29, 30, 64, *range(100, len(whole), 997), len(whole) - 1]:
        refused(tmp_path, whole[:size])


def test_a_flipped_byte_is_noticed_or_harmless(whole: bytes, tmp_path: Path) -> None:
    rng = random.Random(0)
    ends = [*range(200), *range(len(whole) - 250, len(whole))]  # headers and the directory
    for offset in [*rng.sample(range(len(whole)), 100), *ends]:
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{offset}.weft"
        path.write_bytes(damaged)
        try:
            module = load(path)
        except ArtifactError:
            continue
        np.testing.assert_array_equal(module(sample()), expected(sample()))


def test_code_and_weights_are_under_checksums(whole: bytes, tmp_path: Path) -> None:
    with (tmp_path / "a").open("w+b") as file:
        file.write(whole)
        extents = locate_members(file, len(whole))
    for name in (MANIFEST, LIBRARY, "constants.bin"):
        start, size = extents[name]
        damaged = bytearray(whole)
        damaged[start + size // 2] ^= 1
        assert name in str(refused(tmp_path, bytes(damaged)).where)


def rewritten(source: Path, target: Path, changes: Mapping[str, bytes | str],
              method: int = zipfile.ZIP_STORED) -> Path:
    """The archive with other members of these names, as another tool writes it."""
    with zipfile.ZipFile(source) as given, zipfile.ZipFile(target, "w") as taken:
        for name in MEMBERS:
            taken.writestr(name, changes.get(name, given.read(name)), method)
    return target


def test_a_manifest_edited_by_hand_is_refused(tmp_path: Path) -> None:
    source, target = written(tmp_path), tmp_path / "edited.weft"
    load(rewritten(source, target, {}))  # another tool's archive of the same members is as good
    with zipfile.ZipFile(source) as given:
        document, head = (json.loads(given.read(name)) for name in (MANIFEST, "artifact.json"))
    document["outputs"][0]["shape"] = [1]  # the code would write past its end
    text = json.dumps(document).encode()
    rewritten(source, target, {MANIFEST: text})
    assert "manifest.json" in str(refused(tmp_path, target.read_bytes()).where)
    head["checksums"][MANIFEST] = digest(text)
    rewritten(source, target, {MANIFEST: text, "artifact.json": json.dumps(head)})
    assert "artifact.json" in str(refused(tmp_path, target.read_bytes()).where)


def test_files_of_version_3(tmp_path: Path) -> None:
    """One program without a head, whose manifest holds the checksums."""
    path = tmp_path / "old.weft"
    plain = json.loads(manifest().to_json())
    plain["checksums"] = {"lib.so": digest(code()), "constants.bin": digest(C.tobytes())}
    plain["checksums"]["manifest.json"] = manifest_digest(plain)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (("manifest.json", json.dumps(plain)), ("lib.so", code()),
                           ("constants.bin", C.tobytes())):
            archive.writestr(name, data)
    np.testing.assert_array_equal(load(path)(sample()), expected(sample()))
    plain["outputs"][0]["shape"] = [1]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", json.dumps(plain))
    assert "manifest.json" in str(refused(tmp_path, path.read_bytes()).where)


def test_another_archive(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    assert "readme.txt" in str(refused(tmp_path, path.read_bytes()).got)


def test_a_compressed_artifact(whole: bytes, tmp_path: Path) -> None:
    source = tmp_path / "whole.weft"
    source.write_bytes(whole)
    target = rewritten(source, tmp_path / "small.weft", {}, zipfile.ZIP_DEFLATED)
    assert "compressed" in str(refused(tmp_path, target.read_bytes()).got)


@pytest.mark.parametrize("path", [None, 3, b"bytes", "with\0zero"])
def test_what_is_no_path(path: object) -> None:
    with pytest.raises(ArtifactError):
        load(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="No such file"):
        load(tmp_path / "none.weft")
    with pytest.raises(ArtifactError, match="directory"):
        load(tmp_path)


def test_a_cpu_without_the_features(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, replace(manifest(), target=TargetSpec(
        manifest().target.triple, "future", ("avx2048", "fma"))))
    monkeypatch.setattr(launchers, "host_features", lambda: frozenset(["fma"]))
    with pytest.raises(ArtifactError, match="future with avx2048"):
        load(path)


@pytest.mark.parametrize("triple", ["riscv64-unknown-linux-gnu", "x86_64-pc-windows-msvc"])
def test_another_machine(triple: str) -> None:
    with pytest.raises(ArtifactError, match="another machine") as caught:
        check_machine(TargetSpec(triple, "any"))
    assert caught.value.expected == triple


@pytest.mark.parametrize("name", ["darwin", "win32", "freebsd14"])
def test_another_operating_system(name: str, tmp_path: Path,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, manifest())
    monkeypatch.setattr(launchers, "system", lambda: name)
    with pytest.raises(ArtifactError, match="runs compiled code on Linux only") as caught:
        load(path)
    assert caught.value.got == name


def test_another_format_version(tmp_path: Path) -> None:
    path = written(tmp_path, replace(manifest(), format_version=99))
    with pytest.raises(ArtifactError, match="another format"):
        load(path)
