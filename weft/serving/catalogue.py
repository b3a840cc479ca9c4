"""``Catalogue``: the models of a server by name and version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from weft.serving.limits import Limits
from weft.serving.observer import Observer
from weft.serving.refusal import unknown_model
from weft.serving.replicas import Replicas
from weft.serving.tensor_model import TensorModel
from weft.serving.text_model import TextModel
from weft.serving.text_scheduler import TextScheduler
from weft.serving.text_schedulers import TextSchedulers
from weft.support.errors import OptionError


class ServedText:
    """A language model under its name, with the scheduler of each of its decoders."""

    def __init__(self, name: str, model: TextModel, limits: Limits | None = None) -> None:
        self.name = name
        self.model = model
        cached_prompts = getattr(model, "cached_prompts", ())
        self.scheduler = TextSchedulers(name, [
            TextScheduler(decoder, limits=limits, name=name, cached_prompts=cached_prompts)
            for decoder in getattr(model, "decoders", (model.decoder,))])


class Catalogue:
    """Models with tensors for inputs, and language models.

    ``limits`` are those of the server and of the queues of language models; a ``TensorModel``
    brings its own. ``replicas`` are the processes that compute, where there are any.
    """

    replicas: Replicas | None = None

    def __init__(self, tensor_models: Iterable[TensorModel] = (),
                 text_models: Mapping[str, TextModel] | None = None, *,
                 limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._tensors: dict[str, dict[str, TensorModel]] = {}
        self.texts: dict[str, ServedText] = {}
        for model in tensor_models:
            self.add(model)
        for name, text in (text_models or {}).items():
            self.add_text(name, text)

    def add(self, model: TensorModel) -> None:
        """Add a model; ``OptionError`` if its name and version are taken."""
        self._check_name(model.name, model.version)
        self._tensors.setdefault(model.name, {})[model.version] = model

    def add_text(self, name: str, model: TextModel) -> None:
        """Add a language model; ``OptionError`` if its name is taken."""
        self._check_name(name, None)
        self.texts[name] = ServedText(name, model, self.limits)

    def _check_name(self, name: str, version: str | None) -> None:
        if not name or "/" in name:
            raise OptionError("invalid name of a model", got=name, expected="a name without '/'")
        known = self._tensors.get(name, {})
        if name in self.texts or version in known or (version is None and known):
            raise OptionError("two models have the same name", got=name,
                              help="give one of them another: NAME=PATH")

    def __iter__(self) -> Iterator[TensorModel]:
        return (model for versions in self._tensors.values() for model in versions.values())

    @property
    def names(self) -> list[str]:
        """All names, in the order of addition."""
        return [*self._tensors, *self.texts]

    def versions(self, name: str) -> list[str]:
        """The versions of a model, oldest first."""
        return sorted(self._tensors.get(name, ()), key=_order)

    def find(self, name: str, version: str | None = None) -> TensorModel:
        """The model in a version, by default the latest; ``RefusedError`` if there is none."""
        if name not in self._tensors:
            raise unknown_model(name, ", ".join(self._tensors) or "no model with tensors")
        versions = self._tensors[name]
        wanted = self.versions(name)[-1] if version is None else version
        if wanted not in versions:
            raise unknown_model(f"{name}, version {wanted}",
                                f"version {', '.join(self.versions(name))}")
        return versions[wanted]

    def find_text(self, name: str) -> ServedText:
        """A language model; ``RefusedError`` if there is none of this name."""
        if name not in self.texts:
            raise unknown_model(name, ", ".join(self.texts) or "no language model")
        return self.texts[name]

    def observe(self, observer: Observer) -> None:
        """Let all models report to ``observer``."""
        for model in self:
            model.observe(observer)
        for text in self.texts.values():
            text.scheduler.observe(observer)

    async def close(self) -> None:
        """Answer what was accepted, and end the workers."""
        for model in self:
            await model.close()
        for text in self.texts.values():
            await text.scheduler.close()


def _order(version: str) -> tuple[int, int, str]:
    return (1, int(version), "") if version.isdecimal() else (0, 0, version)
