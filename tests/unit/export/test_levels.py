"""Native code for several CPUs in one file, the portable form, and the trial of a new file."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.compiler import export_model
from weft.runtime import artifact, artifact_loader, launchers
from weft.runtime.artifact_file import ArtifactFile
from weft.support.errors import ArtifactError, OptionError
from weft.target.cpus import CPU_FEATURES, with_implied

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def features_of(cpu: str) -> frozenset[str]:
    return with_implied(frozenset(CPU_FEATURES[cpu]))


def model() -> weft.Executable:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    mod = weft.parse("def @main(%x: Tensor[(4, 64), float32]) { nn.softmax(%x) }")
    main = mod["main"]
    body = weft.op.nn.dense(main.body, weft.ir.Constant(weights))
    return weft.compile(mod.with_function("main", main.replace(body=body, checked_type=None)))


X = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def compiled() -> weft.Executable:
    return model()


@pytest.fixture(scope="module")
def whole(compiled: weft.Executable, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("levels") / "net.weft"
    compiled.export(path, levels=["v2", "v3", "v4"])
    return path


@pytest.mark.parametrize(("cpu", "chosen"), [
    ("nehalem", "x86-64-v2"), ("haswell", "x86-64-v3"), ("znver4", "x86-64-v4"),
    ("alderlake", "x86-64-v3")])
def test_the_best_level_that_fits(whole: Path, compiled: weft.Executable, cpu: str, chosen: str,
                                  monkeypatch: pytest.MonkeyPatch) -> None:
    here = launchers.host_features()
    if not features_of(chosen) <= here:
        pytest.skip("this CPU lacks the level")
    monkeypatch.setattr(launchers, "host_features", lambda: features_of(cpu))
    module = artifact.load(whole)
    assert module.manifest.target.cpu == chosen
    np.testing.assert_allclose(module(X), compiled(X), rtol=1e-4, atol=1e-5)


def test_no_level_fits(whole: Path, monkeypatch: pytest.MonkeyPatch, compiled: weft.Executable
                       ) -> None:
    """An older CPU: refused by the names of the least that is missing, or compiled for it."""
    monkeypatch.setattr(launchers, "host_features", lambda: features_of("x86-64"))
    with pytest.raises(ArtifactError, match=r"x86-64-v2 with cx16, popcnt, sse3") as caught:
        artifact.load(whole)
    assert "avx" not in str(caught.value)
    reason = caught.value
    monkeypatch.undo()

    def refuse(_: object) -> None:
        raise reason

    monkeypatch.setattr(artifact_loader, "check_machine", refuse)  # of the file, not of new code
    with pytest.warns(weft.FallbackWarning, match="compiled again for this machine"):
        module = weft.load(whole)
    np.testing.assert_array_equal(module(X), compiled(X))


def test_the_portable_form_gives_the_bits_of_the_module(compiled: weft.Executable, tmp_path: Path
                                                        ) -> None:
    path = tmp_path / "net.weft"
    compiled.export(path)
    file = ArtifactFile(path)
    form = file.contents.entries["main"].portable
    program = artifact_loader.PortableProgram(bytes(file.read(form.program)).decode(), file.read,
                                              form.options, {})
    rebuilt = weft.serialization.CompilerHere().program(program, None)
    np.testing.assert_array_equal(rebuilt(X), compiled(X))
    np.testing.assert_array_equal(artifact.load(path)(X), compiled(X))
    compiled.export(path, portable=False)
    assert ArtifactFile(path).contents.entries["main"].portable is None


def test_equal_weights_are_in_the_file_once(whole: Path) -> None:
    """Three levels and the portable form: what their kernels read in the same layout is shared."""
    with zipfile.ZipFile(whole) as archive:
        size = {info.filename: info.file_size for info in archive.infolist()}
    once = 64 * 64 * 4
    assert once <= size["constants.bin"] + size.get("portable/constants.bin", 0) <= 4 * once
    assert sum(name.endswith("lib.so") for name in size) == 3
    assert b"nn.dense" in zipfile.ZipFile(whole).read("portable/main.json")


@pytest.mark.parametrize("levels", [["v9"], "v2", [3]])
def test_unknown_levels(compiled: weft.Executable, levels: object, tmp_path: Path) -> None:
    with pytest.raises(OptionError):
        compiled.export(tmp_path / "net.weft", levels=levels)
    with pytest.raises(OptionError):
        compiled.export(tmp_path / "net", levels=["v2"], format="c")
    assert not list(tmp_path.iterdir())


def test_a_file_that_gives_other_results_is_not_kept(
        compiled: weft.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = export_model.trial_of

    def wrong(*args: object) -> object:
        trial = right(*args)
        return dataclasses.replace(trial, results=[trial.results[0] + 1])

    monkeypatch.setattr(export_model, "trial_of", wrong)
    with pytest.raises(ArtifactError, match="does not run as the module does"):
        compiled.export(tmp_path / "net.weft")
    assert not list(tmp_path.iterdir())
    compiled.export(tmp_path / "net.weft", check=False)
