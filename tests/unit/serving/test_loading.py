"""From paths to models under names and versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.serving.doubles import Rows, TinyText
from weft.serving import Limits
from weft.serving.loading import load_catalogue
from weft.support.errors import InvalidModelError, OptionError


def loaded(*paths: object):
    opened: list[str] = []

    def open_module(path: str) -> Rows:
        opened.append(Path(path).name)
        return Rows()

    catalogue = load_catalogue(list(map(str, paths)), open_module=open_module,
                               open_text=lambda _name, _path: TinyText(), limits=Limits())
    return catalogue, opened


def touched(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_files_are_named_by_their_stems_or_as_asked(tmp_path):
    a, b = touched(tmp_path / "a.weft"), touched(tmp_path / "b.onnx")
    catalogue, opened = loaded(a, f"other={b}")
    assert catalogue.names == ["a", "other"]
    assert opened == ["a.weft", "b.onnx"]


def test_a_path_with_an_equals_sign_is_a_path(tmp_path):
    assert loaded(touched(tmp_path / "x=1.weft"))[0].names == ["x=1"]


def test_a_repository_has_models_versions_and_language_models(tmp_path):
    touched(tmp_path / "notes.txt")
    touched(tmp_path / "plain.ir")
    touched(tmp_path / "deep" / "2" / "model.onnx")
    touched(tmp_path / "deep" / "10" / "model.weft")
    touched(tmp_path / "llama" / "config.json")
    touched(tmp_path / "qwen.gguf")
    catalogue, _ = loaded(tmp_path)
    assert catalogue.names == ["deep", "plain", "llama", "qwen"]
    assert catalogue.versions("deep") == ["2", "10"]
    assert catalogue.find("deep").version == "10"
    assert catalogue.find_text("llama").name == "llama"
    assert loaded(tmp_path / "llama", f"q={tmp_path / 'qwen.gguf'}")[0].names == ["llama", "q"]


@pytest.mark.parametrize(("files", "given", "message"), [
    ([], ["none.weft"], "not found"), ([], ["name=none.weft"], "not found"),
    (["folder/x.txt"], ["folder"], "without models"),
    (["folder/m/1/a.onnx", "folder/m/1/b.onnx"], ["folder"], "one model")], ids=str)
def test_what_cannot_be_loaded(tmp_path, monkeypatch, files, given, message):
    monkeypatch.chdir(tmp_path)
    for file in files:
        touched(tmp_path / file)
    with pytest.raises(InvalidModelError, match=message):
        loaded(*given)


def test_names_are_unique(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    touched(tmp_path / "a.weft")
    touched(tmp_path / "b" / "config.json")
    for given in (["a.weft", "a.weft"], ["a.weft", "a=b"], ["a=b", "a.weft"], ["a=b", "a=b"]):
        with pytest.raises(OptionError, match="same name"):
            loaded(*given)
    with pytest.raises(OptionError, match="invalid name"):
        loaded("=a.weft")
