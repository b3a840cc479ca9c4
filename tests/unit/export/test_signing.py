"""Signatures of artifacts: what trusted keys have signed is loaded, and nothing else."""

from __future__ import annotations

import stat
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.main import main
from weft.export.signing import make_keys, sign_artifact
from weft.runtime import artifact
from weft.runtime.artifact_format import write_archive
from weft.runtime.artifact_signatures import SIGNATURES, public_key
from weft.support.errors import ArtifactError, MissingToolError, OptionError, SignatureError

pytest.importorskip("cryptography")
pytestmark = pytest.mark.usefixtures("cache_of_module")
X = np.linspace(-1, 1, 4, dtype=np.float32)
OTHER = "ed25519:GNQ0Kxs3vIr5MDTNSaMrIvj4BeZxzOo4PwHvkRCwJbY="


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def key(folder: Path) -> str:
    """The public key; the private one is in ``folder``."""
    return make_keys(folder / "mine")


@pytest.fixture(scope="module")
def module() -> weft.Executable:
    return weft.compile(weft.parse("def @main(%x: Tensor[(4,), float32]) { tanh(%x) }"))


@pytest.fixture(scope="module")
def signed(module: weft.Executable, folder: Path, key: str) -> Path:
    del key
    module.export(folder / "net.weft", sign=folder / "mine.key")
    return folder / "net.weft"


def rewritten(source: Path, target: Path, edit: Callable[[dict[str, bytes]], None]) -> Path:
    """A copy with other members."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    edit(members)
    with target.open("wb") as file:
        write_archive(file, {name: (data,) for name, data in members.items()})
    return target


def test_a_signed_file_is_loaded(signed: Path, module: weft.Executable, key: str, folder: Path,
                                 tmp_path: Path) -> None:
    for trusted in ([key], [OTHER, folder / "mine.pub"], [str(folder / "mine.pub")]):
        np.testing.assert_array_equal(weft.load(signed, trusted_keys=trusted)(X), module(X))
    np.testing.assert_array_equal(weft.load(signed)(X), module(X))
    module.export(tmp_path / "again.weft", sign=folder / "mine.key")
    assert (tmp_path / "again.weft").read_bytes() == signed.read_bytes()


def test_others_are_refused(signed: Path, module: weft.Executable, key: str, tmp_path: Path
                            ) -> None:
    module.export(tmp_path / "plain.weft")
    with pytest.raises(SignatureError, match="not signed"):
        weft.load(tmp_path / "plain.weft", trusted_keys=[key])
    with pytest.raises(SignatureError, match="no trusted key has signed") as info:
        weft.load(signed, trusted_keys=[OTHER])
    assert info.value.got == key
    with pytest.raises(SignatureError, match="no trusted key has signed"):
        weft.load(signed, trusted_keys=[])
    module.export(tmp_path / "other.weft", portable=False)

    def with_its_signature(members: dict[str, bytes]) -> None:
        with zipfile.ZipFile(signed) as archive:
            members[SIGNATURES] = archive.read(SIGNATURES)

    moved = rewritten(tmp_path / "other.weft", tmp_path / "moved.weft", with_its_signature)
    with pytest.raises(SignatureError, match="not one of this artifact"):
        weft.load(moved, trusted_keys=[key])
    weft.save({"x": X}, tmp_path / "objects")
    with pytest.raises(ArtifactError):
        weft.load(tmp_path / "objects", trusted_keys=[key])


@pytest.mark.parametrize("member", ["artifact.json", "lib.so", "manifest.json", "constants.bin",
                                    SIGNATURES])
def test_changes_are_found(signed: Path, key: str, tmp_path: Path, member: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        name = next(one for one in members if one.endswith(member))
        data = members[name] or b" "
        members[name] = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] if len(data) > 9 else b"x"

    with pytest.raises(ArtifactError):
        weft.load(rewritten(signed, tmp_path / "net.weft", change), trusted_keys=[key])(X)


def test_files_are_signed_and_inspected_later(module: weft.Executable, key: str, folder: Path,
                                              tmp_path: Path, capsys: pytest.CaptureFixture[str]
                                              ) -> None:
    path = tmp_path / "net.weft"
    module.export(path)
    for command in (["keys", "-o", str(tmp_path / "second")],
                    ["sign", str(path), "--key", str(tmp_path / "second.key")],
                    ["sign", str(path), "--key", str(folder / "mine.key")],
                    ["inspect", str(path)]):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == 0
    second = public_key(tmp_path / "second.pub")
    shown = capsys.readouterr().out
    assert f"signed by {key}: right" in shown
    assert f"signed by {second}: right" in shown
    for one in (key, second):
        np.testing.assert_array_equal(weft.load(path, trusted_keys=[one])(X), module(X))
    assert stat.S_IMODE((tmp_path / "second.key").stat().st_mode) == 0o600
    with pytest.raises(OptionError, match="a key is not replaced"):
        make_keys(tmp_path / "second")


def test_what_is_no_key(signed: Path, module: weft.Executable, folder: Path, key: str,
                        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("ed25519:AAAA", "ed25519:?", 3, tmp_path / "none", folder / "mine.key"):
        with pytest.raises(OptionError, match="not a public key"):
            weft.load(signed, trusted_keys=[wrong])
    with pytest.raises(OptionError, match="not a list of keys"):
        weft.load(signed, trusted_keys=key)
    for wrong in (tmp_path / "none", folder / "mine.pub", 3):
        with pytest.raises(OptionError, match="not a private key"):
            module.export(tmp_path / "net.weft", sign=wrong)
    with pytest.raises(OptionError, match=r"files of weft\.load are signed"):
        module.export(tmp_path / "net", format="c", sign=folder / "mine.key")
    (tmp_path / "text").write_text("no artifact")
    with pytest.raises(ArtifactError):
        sign_artifact(tmp_path / "text", folder / "mine.key")
    assert not list(tmp_path.glob("net*"))
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(MissingToolError, match="need the cryptography package"):
        artifact.load(signed, trusted_keys=[key])
    with pytest.raises(MissingToolError, match="need the cryptography package"):
        make_keys(tmp_path / "third")
