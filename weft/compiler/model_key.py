"""The key of a model in the disk cache, from its content."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path

from weft.compiler.build.fingerprint import compiler_digest, key_of
from weft.compiler.extensions import is_self_contained, may_use_extensions
from weft.compiler.options import CompileOptions
from weft.compiler.sources import TEXT_SUFFIXES, Source, is_onnx
from weft.compiler.warm_start.state import FileState, FileStates, file_state, state_at
from weft.frontend.onnx import onnx_foreign_converters
from weft.frontend.onnx.wire import external_files, split_model
from weft.frontend.torch import is_module_source
from weft.ir import Function, IRModule, structural_hash
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.file_content import FileContent, file_digest
from weft.support.part_digest import digest_of
from weft.target import Target


@dataclass(frozen=True, slots=True)
class ModelKey:
    """``text`` is the key in the cache; ``files`` are all files that it covers.

    ``identity`` names the model (empty for a model without one), and ``parts`` are digests of what
    the key is made of, by labels: they tell what changed since the last entry of the model.
    """

    text: str
    files: FileStates = ()
    identity: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_current(self) -> bool:
        """Whether the files of weights beside the model have the states that they had."""
        return all(file_state(path) == state for path, state in self.files[1:])


@dataclass(frozen=True, slots=True)
class NotKept:
    """A model that the cache does not keep, and the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Content:
    """What decides about a model: a digest, the text that may name operators, its files.

    ``identity`` and ``parts`` are those of ``ModelKey``.
    """

    digest: str
    text: bytes
    files: FileStates = ()
    identity: str = ""
    parts: Mapping[str, str] = field(default_factory=dict)


def model_key(model: Source, options: CompileOptions) -> ModelKey | NotKept:
    """The key under which a compiled model is kept, or why it is not kept.

    A path or bytes are neither imported nor parsed for it. Not kept are models whose code a user's
    operator, hook, strategy, pass, rule, ONNX converter or code generator may decide, because no
    digest covers the sources of those, and ONNX models whose external data are not in files below
    their folder.
    """
    if options.codegens or options.extensions:
        return NotKept("passes, rules or code generators of the user decide about the code")
    if is_onnx(model) and onnx_foreign_converters():
        return NotKept("converters of the user decide about the code")
    content = _content(model, options.target)
    if isinstance(content, NotKept):
        return content
    if may_use_extensions(content.text, options.target):
        return NotKept("operators or strategies of the user decide about the code")
    # The same bytes are a program under one name and a damaged ONNX file under another.
    kind = "program" if _is_text(model) else "model"
    text = key_of(kind, content.digest, options.key_text())
    own = {"weft, or a library that it uses,": compiler_digest()[:16],
           **{f"the option {name}": value for name, value in options.key_parts().items()}}
    return ModelKey(text, content.files, content.identity, {**content.parts, **own})


def cache_key(model: Source, options: CompileOptions) -> str | None:
    """The text of ``model_key``."""
    found = model_key(model, options)
    return found.text if isinstance(found, ModelKey) else None


def _is_text(model: Source) -> bool:
    return isinstance(model, (str, os.PathLike)) and Path(model).suffix in TEXT_SUFFIXES


def _content(model: Source, target: Target) -> _Content | NotKept:
    if is_module_source(model):
        found = model.digested()
        if isinstance(found, str):
            return NotKept(found)
        return _Content(f"torch {found.text}", b"", (), model.identity, found.parts)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return _content_of_bytes(memoryview(model))
    if isinstance(model, (str, os.PathLike)):
        return _content_of_file(model if isinstance(model, FileContent) else FileContent(model))
    if hasattr(model, "SerializeToString") and hasattr(model, "graph"):
        try:
            return _content_of_bytes(memoryview(model.SerializeToString(deterministic=True)))
        except Exception as error:  # noqa: BLE001 - over protobuf's size limit, or not a message
            return NotKept(f"the model cannot be serialised: {type(error).__name__}")
    if isinstance(model, Function):
        model = IRModule.from_expr(model)
    if isinstance(model, IRModule):
        return _content_of_module(model, target)
    return NotKept(f"no digest covers a model of type {type(model).__name__}")


def _content_of_bytes(data: memoryview) -> _Content | NotKept:
    text = _text_of_onnx(data)
    # External data cannot be found without a folder: the front end reports it.
    return NotKept("the model's external data are not there") if external_files(text) != () \
        else _Content(digest_of(data).hex(), text)


def _content_of_file(file: FileContent) -> _Content | NotKept:
    try:
        found = file.content()
    except (OSError, ValueError, MemoryError):
        return NotKept("the file cannot be read")  # the front end reports the error
    own = {f"the file {Path(file).name}": found.digest}
    identity = str(Path(file).absolute())
    files: FileStates = ((str(Path(file).absolute()), state_at(found.status, found.began)),)
    if _is_text(file):
        return _Content(found.digest, bytes(found.data), files, identity, own)
    text = _text_of_onnx(found.data)
    names = external_files(text)
    if names is None:
        return NotKept("the file is no ONNX model")
    try:
        further = tuple(_external(Path(file).resolve().parent, names))
    except (OSError, ValueError):
        return NotKept("its external data are not in files below its folder, or too large")
    own |= {f"the file {Path(path).name}": digest for path, _, digest in further}
    digests = (found.digest, *(digest for _, _, digest in further))
    return _Content(" ".join(digests), text,
                    (*files, *((path, state) for path, state, _ in further)), identity, own)


def _external(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, FileState | None, str]]:
    """The path, state and digest of each file of external data.

    Raises ``ValueError`` for a file elsewhere, and for more data than the cache can hold.
    """
    paths = [(folder / name).resolve() for name in names]
    if not all(path.is_relative_to(folder) for path in paths) \
            or sum(path.stat().st_size for path in paths) > config.cache_size:
        raise ValueError(names)
    for path in paths:
        state = file_state(path)
        yield str(path), state, file_digest(path)


def _text_of_onnx(data: memoryview) -> bytes:
    """The part of a serialized model that names its operators and files."""
    split = split_model(data)
    return bytes(data) if split is None else split.message


def _content_of_module(mod: IRModule, target: Target) -> _Content | NotKept:
    if not all(is_self_contained(fn, target) for fn in mod.functions.values()):
        return NotKept("operators or strategies of the user decide about the code")
    # The hash says nothing of names, and those of main's parameters are the names of inputs.
    names = [param.name for param in mod["main"].params] if "main" in mod else []
    return _Content(f"{structural_hash(mod)} {names!r} {sorted(mod.attrs.items())!r}", b"")
