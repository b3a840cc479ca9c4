"""``weft compile --levels`` and ``weft inspect`` of artifacts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.commands import run

TEXT = "def @main(%x: Tensor[(n, 4), float32]) { nn.softmax(%x) }"


def test_inspect_lists_what_an_artifact_needs(tmp_path: Path, own_cache: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.ir").write_text(TEXT)
    artifact = str(tmp_path / "net.weft")
    assert run(["compile", str(tmp_path / "net.ir"), "-o", artifact, "--levels", "v2,v3"],
               capsys)[0] == 0
    code, out, _ = run(["inspect", artifact], capsys)
    assert code == 0
    assert "native code native/main/x86-64-v2" in out
    assert "needs: x86_64-unknown-linux-gnu, avx, avx2" in out
    assert "this machine: " in out
    assert "packages: numpy" in out
    assert "operators: nn.softmax" in out
    assert "all checksums are right" in out
    data = bytearray((tmp_path / "net.weft").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "net.weft").write_bytes(data)
    assert run(["inspect", artifact], capsys)[0] != 0


def test_compile_without_the_program(tmp_path: Path, own_cache: Path,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.ir").write_text(TEXT)
    artifact = str(tmp_path / "net.weft")
    assert run(["compile", str(tmp_path / "net.ir"), "-o", artifact, "--no-portable",
                "--no-check"], capsys)[0] == 0
    assert "portable" not in run(["inspect", artifact], capsys)[1]
