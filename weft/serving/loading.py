"""From paths to a catalogue: artifacts, models, folders of them, and language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weft.serving.catalogue import Catalogue
from weft.serving.limits import Limits
from weft.serving.tensor_model import TensorModel, TensorModule
from weft.serving.text_model import TextModel
from weft.support.errors import InvalidModelError

SUFFIXES = (".weft", ".onnx", ".ir", ".pb")
LANGUAGE_SUFFIX = ".gguf"
_LANGUAGE_MODEL = "config.json"  # what a folder of the Hugging Face hub has

OpenModule = Callable[[str], TensorModule]
OpenText = Callable[[str], TextModel]


def load_catalogue(paths: Sequence[str], *, open_module: OpenModule, open_text: OpenText,
                   limits: Limits) -> Catalogue:
    """The models of ``PATH`` or ``NAME=PATH`` each.

    A path is a model or an artifact, the folder or the GGUF file of a language model, or a
    repository: a folder with all these, and with folders ``NAME/VERSION`` with one model each.
    """
    catalogue = Catalogue(limits=limits)
    for given in paths:
        name, path = _named(given)
        if path.is_dir() and not _is_language_model(path):
            _load_repository(catalogue, path, open_module, open_text)
        else:
            _load(catalogue, name, "1", path, open_module, open_text)
    return catalogue


def _named(given: str) -> tuple[str, Path]:
    name, equals, rest = given.partition("=")
    path = Path(rest) if equals and not Path(given).exists() else Path(given)
    if not path.exists():
        raise InvalidModelError("model file not found", where=path)
    named = bool(equals) and path == Path(rest)
    return name if named else _name_of(path), path


def _name_of(path: Path) -> str:
    return path.resolve().name if path.is_dir() else path.stem


def _is_language_model(path: Path) -> bool:
    return path.suffix == LANGUAGE_SUFFIX if path.is_file() else (path / _LANGUAGE_MODEL).is_file()


def _load(catalogue: Catalogue, name: str, version: str, path: Path, open_module: OpenModule,
          open_text: OpenText) -> None:
    if _is_language_model(path):
        catalogue.add_text(name, open_text(str(path)))
        return
    catalogue.add(TensorModel(name, open_module(str(path)), version=version,
                              limits=catalogue.limits))


def _load_repository(catalogue: Catalogue, folder: Path, open_module: OpenModule,
                     open_text: OpenText) -> None:
    found = list(_entries(folder))
    if not found:
        raise InvalidModelError("a folder without models", where=folder,
                                expected=f"files with {', '.join((*SUFFIXES, LANGUAGE_SUFFIX))}, "
                                "folders of language models, or folders NAME/VERSION with a model")
    for name, version, path in found:
        _load(catalogue, name, version, path, open_module, open_text)


def _entries(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """Name, version and path of each model of a repository."""
    for path in sorted(folder.iterdir()):
        if _is_language_model(path):
            yield _name_of(path), "1", path
        elif path.is_dir():
            for version in sorted(p for p in path.iterdir() if p.is_dir() and p.name.isdecimal()):
                models = [p for p in sorted(version.iterdir()) if p.suffix in SUFFIXES]
                if len(models) != 1:
                    raise InvalidModelError("a version has one model", where=version,
                                            got=f"{len(models)} models")
                yield path.name, version.name, models[0]
        elif path.suffix in SUFFIXES:
            yield path.stem, "1", path
