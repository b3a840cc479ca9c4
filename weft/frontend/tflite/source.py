"""A TensorFlow Lite model, in a file or its bytes, as a ``Source``."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from weft.frontend.source import Examples, GraphSource, ImportOptions, Source, SourceDigest
from weft.frontend.tflite import load_tflite_part
from weft.ir.module import IRModule
from weft.support.file_content import FileContent, digest_of, state_at
from weft.transform.passes.extract_subgraph import extract_subgraph

if TYPE_CHECKING:
    from weft.frontend.tflite.model import Model

Shapes = Mapping[str, Sequence[object] | None]


def open_tflite(model: FileContent | bytes | bytearray | memoryview, _: Examples,
                options: ImportOptions) -> Source:
    """The source of a file. One with variables is a graph, whose state the executable keeps."""
    read = load_tflite_part("reader").read_model(
        model if isinstance(model, FileContent) else bytes(model))
    if load_tflite_part("state").has_state(read):
        return GraphSource(StatefulModel(read), options)
    return TfliteSource(model, read)


class TfliteSource(Source):
    """A model without variables."""

    kind = "tflite"
    assumes_ranges = True

    def __init__(self, model: FileContent | bytes | bytearray | memoryview, read: Model) -> None:
        super().__init__(model if isinstance(model, FileContent) else None)
        self._model, self._read = model, read

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        return load_tflite_part("importer").import_model(  # type: ignore[no-any-return]
            self._read, options.input_shapes or {}, None)

    def digest(self) -> SourceDigest | str:
        """See ``Source``."""
        if has_users_converters():
            return "converters of the user decide about the code"
        operators = " ".join(o.name for g in self._read.subgraphs for o in g.operators).encode()
        if not isinstance(self._model, FileContent):
            return SourceDigest(digest_of(bytes(self._model)).hex(), operators)
        try:
            found = self._model.content()
        except (OSError, ValueError, MemoryError):
            return "the file cannot be read"  # the import reports the error
        path = Path(self._model).absolute()
        return SourceDigest(found.digest, operators,
                            ((str(path), state_at(found.status, found.began)),),
                            str(path), {f"the file {path.name}": found.digest})


class StatefulModel:
    """A model with variables, as a graph."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._shapes: Shapes = {}

    def to_module(self, outputs: Sequence[str] | None = None, inputs: Shapes | None = None
                  ) -> IRModule:
        """See ``weft.frontend.source.GraphLike``."""
        self._shapes = inputs or {}
        whole: IRModule = load_tflite_part("importer").import_model(self._model, self._shapes, None)
        return whole if outputs is None else extract_subgraph(whole, outputs, {})

    def initial_values(self) -> dict[str, np.ndarray]:
        """The first values of the variables, by name."""
        return load_tflite_part("importer").first_values(  # type: ignore[no-any-return]
            self._model, self._shapes)


def has_users_converters() -> bool:
    """Whether a user has registered a converter, which decides about code without a digest."""
    registry = sys.modules.get("weft.frontend.tflite.registry")
    return registry is not None and bool(registry.CONVERTERS.of_users())
