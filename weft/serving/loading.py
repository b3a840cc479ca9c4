"""From paths to a catalogue: artifacts, models, folders of them, and language models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from weft.serving.catalogue import Catalogue
from weft.serving.limits import Limits
from weft.serving.tensor_model import TensorModel, TensorModule
from weft.serving.text_model import TextModel
from weft.support.errors import InvalidModelError, OptionError

SUFFIXES = (".weft", ".onnx", ".ir", ".pb")
LANGUAGE_SUFFIX = ".gguf"
_LANGUAGE_MODEL = "config.json"  # what a folder of the Hugging Face hub has

OpenModule = Callable[[str], TensorModule]
OpenText = Callable[[str, str], TextModel]  # of a name and a path


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


class FilesOfModels:
    """Files of an option: ``PATH`` for every language model, or ``NAME=PATH`` for one of them."""

    def __init__(self, option: str, given: Sequence[str]) -> None:
        self._option = option
        self._files = [split_name(entry) for entry in given]

    def of(self, name: str) -> tuple[str, ...]:
        """Those of a model."""
        return tuple(str(path) for wanted, path in self._files if wanted in (None, name))

    def check(self, catalogue: Catalogue) -> None:
        """``OptionError`` for a file of a model that is not there."""
        for wanted, path in self._files:
            if (wanted is None and not catalogue.texts) or wanted not in (None, *catalogue.texts):
                raise OptionError(f"{self._option} is for a language model that is served",
                                  got=f"{wanted or ''}={path}".lstrip("="),
                                  expected=", ".join(catalogue.texts) or "a language model")


def split_name(given: str) -> tuple[str | None, Path]:
    """The name, if there is one, and the path of ``PATH`` or ``NAME=PATH``."""
    name, equals, rest = given.partition("=")
    path = Path(rest) if equals and not Path(given).exists() else Path(given)
    return name if equals and path == Path(rest) else None, path


def _named(given: str) -> tuple[str, Path]:
    name, path = split_name(given)
    if not path.exists():
        raise InvalidModelError("model file not found", where=path)
    return _name_of(path) if name is None else name, path


def _name_of(path: Path) -> str:
    return path.resolve().name if path.is_dir() else path.stem


def _is_language_model(path: Path) -> bool:
    return path.suffix == LANGUAGE_SUFFIX if path.is_file() else (path / _LANGUAGE_MODEL).is_file()


def _load(catalogue: Catalogue, name: str, version: str, path: Path, open_module: OpenModule,
          open_text: OpenText) -> None:
    if _is_language_model(path):
        catalogue.add_text(name, open_text(name, str(path)))
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
