"""An ONNX model, in a file or in memory, as a ``Source``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.frontend.onnx import (
    from_onnx,
    import_for,
    load_onnx_importer,
    onnx_signature,
)
from weft.frontend.onnx.wire import external_files, split_model
from weft.frontend.source import Declared, Examples, ImportOptions, Source, SourceDigest
from weft.ir import IRModule, is_static
from weft.support.config import config
from weft.support.errors import UnsupportedModelError
from weft.support.file_content import (
    FileContent,
    FileStates,
    digest_of,
    digests_later,
    file_state,
    state_at,
)

if TYPE_CHECKING:
    import onnx


class OnnxSource(Source):
    """A file, its bytes, or an ``onnx.ModelProto``, which is ``model``."""

    assumes_ranges = True

    def __init__(self, model: FileContent | bytes | bytearray | memoryview | Any,
                 _: Examples = None, __: ImportOptions | None = None) -> None:
        super().__init__(model if isinstance(model, FileContent) else None)
        self.model: Any = bytes(model) if isinstance(model, (bytearray, memoryview)) else model

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        return from_onnx(self.model, inputs=options.input_shapes)

    def import_needed(self, options: ImportOptions, outputs: Sequence[str] | None,
                      given: Collection[str]) -> IRModule:
        """See ``Source``: nodes that no output needs may have operators that weft does not know."""
        if outputs is None or options.placement_names:
            return self.import_whole(options)
        return import_for(self.model, options.input_shapes or {}, outputs, given)

    def preload(self) -> None:
        """See ``Source``."""
        if self.file is not None and self.file.is_being_read:
            load_onnx_importer()

    def signature(self, options: ImportOptions) -> tuple[Declared, Declared] | None:
        """See ``Source``."""
        try:
            inputs, outputs = onnx_signature(self.model, inputs=options.input_shapes)
        except UnsupportedModelError:  # the error of importing the model says more
            return None
        return None if all(is_static(type_) for _, type_ in inputs) else (inputs, outputs)

    def as_onnx(self) -> onnx.ModelProto:
        """See ``Source``."""
        import onnx

        if self.file is not None:
            return onnx.load(self.file)
        if isinstance(self.model, bytes):
            return onnx.load_from_string(self.model)
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        return copy

    def digest(self) -> SourceDigest | str:
        """See ``Source``. External data must be in files below the folder of the model."""
        return self.digest_later()()

    def digest_later(self) -> Callable[[], SourceDigest | str]:
        """See ``Source``."""
        if self.file is not None and not self._uses_converters_of_users():
            return _digest_of_file(self.file)
        found = self._digest()
        return lambda: found

    def _uses_converters_of_users(self) -> bool:
        # Converters of users import the registry.
        registry = sys.modules.get("weft.frontend.onnx.registry")
        return registry is not None and bool(registry.CONVERTERS.of_users())

    def _digest(self) -> SourceDigest | str:
        if self._uses_converters_of_users():
            return "converters of the user decide about the code"
        if isinstance(self.model, bytes):
            return _digest_of_bytes(self.model)
        try:
            return _digest_of_bytes(self.model.SerializeToString(deterministic=True))
        except Exception as error:  # noqa: BLE001 - over protobuf's size limit, or not a message
            return f"the model cannot be serialised: {type(error).__name__}"


def _digest_of_bytes(data: bytes) -> SourceDigest | str:
    text = _without_weights(memoryview(data))
    # External data cannot be found without a folder: the import reports it.
    return "the model's external data are not there" if external_files(text) != () \
        else SourceDigest(digest_of(data).hex(), text)


def _digest_of_file(file: FileContent) -> Callable[[], SourceDigest | str]:
    try:
        found = file.content()
    except (OSError, ValueError, MemoryError):
        return lambda: "the file cannot be read"  # the import reports the error
    path = Path(file)
    text = _without_weights(found.data)
    find_digest, state = found.find_digest, state_at(found.status, found.began)
    del found  # the digest does not keep the content
    names = external_files(text)
    if names is None:
        return lambda: "the file is no ONNX model"
    refusal = "its external data are not in files below its folder, or too large"
    try:
        further = _external(path.resolve().parent, names)
    except (OSError, ValueError):
        return lambda: refusal
    identity = str(path.absolute())
    files = ((identity, state), *further)
    others = digests_later([name for name, _ in further]) if further else tuple

    def digest() -> SourceDigest | str:
        try:
            digests = (find_digest(), *others())
        except OSError:
            return refusal
        parts = {f"the file {Path(name).name}": digest
                 for (name, _), digest in zip(files, digests, strict=True)}
        return SourceDigest(" ".join(digests), text, files, identity, parts)

    return digest


def _external(folder: Path, names: tuple[str, ...]) -> FileStates:
    """The path and state of each file of external data.

    Raises ``ValueError`` for a file elsewhere, and for more data than the cache can hold.
    """
    paths = [(folder / name).resolve() for name in names]
    if not all(path.is_relative_to(folder) for path in paths) \
            or sum(path.stat().st_size for path in paths) > config.cache_size:
        raise ValueError(names)
    return tuple((str(path), file_state(path)) for path in paths)


def _without_weights(data: memoryview) -> bytes:
    """The part of a serialized model that names its operators and files."""
    split = split_model(data)
    return bytes(data) if split is None else split.message
