"""``weft.save`` and ``weft.load``: files of Python objects with tensors, and artifacts."""

from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from weft.runtime import artifact
from weft.runtime.artifact_loader import PortableProgram
from weft.runtime.executable import Executable
from weft.runtime.manifest import TargetSpec
from weft.support.errors import ArtifactError, CheckpointError

_MAGIC = b"weft objects 1\n"

# What a file of objects may name: containers, arrays and tensors, nothing that runs.
_ALLOWED = {
    "builtins": "complex set frozenset slice range bytearray",
    "collections": "OrderedDict defaultdict deque",
    "ml_dtypes": "bfloat16",
    "numpy": "dtype ndarray",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy._core.numeric": "_frombuffer",
    "numpy.core.multiarray": "_reconstruct scalar",
    "weft.eager.copies": "_restored _restored_view",
    "weft.eager.device": "device",
    "weft.eager.dtypes": "as_dtype",
    "weft.eager.storage": "Memory",
    "weft.eager.tensor": "Size Tensor _restored",
    "weft.eager.views": "Part Permute Reshape",
    "weft.nn.parameter": "Parameter",
}


class _Reader(pickle.Unpickler):
    """Reads containers, numbers, arrays and tensors; refuses all other classes."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _ALLOWED.get(module, "").split():
            raise CheckpointError("the file holds objects that are not loaded",
                                  got=f"{module}.{name}", expected="containers, numbers, tensors",
                                  help="save a state_dict() instead of a model")
        return getattr(importlib.import_module(module), name)


def save(obj: Any, f: str | os.PathLike[str] | BinaryIO) -> None:
    """Write containers of tensors, numbers and strings (a ``state_dict``) to a file."""
    if hasattr(f, "write"):
        f.write(_MAGIC)  # type: ignore[union-attr]
        pickle.dump(obj, f, protocol=5)  # type: ignore[arg-type]
        return
    path = Path(f)  # type: ignore[arg-type]
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            save(obj, file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


class CompilerHere:
    """The compiler, imported when an artifact needs it (``weft.runtime.artifact_loader``)."""

    def program(self, program: PortableProgram, threads: int | None) -> Executable:
        """See ``Rebuilder``."""
        made: Executable = _compiler().rebuilt(program, threads)
        return made

    def specialize(self, target: TargetSpec) -> Any:
        """See ``Rebuilder``; the compiler is imported with the first kernel."""
        def specialize(*arguments: Any) -> Any:
            return _compiler().specializer(target)(*arguments)

        return specialize


def _compiler() -> Any:
    try:
        return importlib.import_module("weft.compiler.rebuild")
    except ModuleNotFoundError as error:
        raise ArtifactError("no compiler is installed", got=f"no module named {error.name!r}",
                            help="pip install weft, with all that it needs") from None


# What the entry points of an artifact make up, by ``Contents.kind``: "module:function".
_OPENERS = {
    "decoder": "weft.models.paged_decoder:PagedDecoder.of_artifact",
    "encoder-decoder": "weft.models.paged_encoder_decoder:PagedEncoderDecoder.of_artifact",
}


def _opened(where: str, entries: artifact.LoadedEntries) -> Any:
    return pkgutil.resolve_name(where)(entries, entries.facts)


def load(path: Any, *, map_constants: bool = True, threads: int | None = None,
         map_location: Any = None, entry: str | None = None,
         trusted_keys: Sequence[object] | None = None, sandbox: bool = False) -> Any:
    """The module that an artifact holds, or the objects that ``save`` has written.

    For an artifact with code that fits this CPU no compiler is imported;
    ``weft.runtime.artifact.load`` says what the options mean; ``trusted_keys`` are those of
    artifacts, for which a file of objects is refused. Of objects, only containers, numbers
    and tensors are loaded: a file cannot run code. Tensors come back to the device where they were;
    ``map_location`` is another one for all, or a dictionary from devices to others.
    """
    if hasattr(path, "read") and trusted_keys is None:
        return _objects(path, map_location)
    try:
        with Path(path).open("rb") as file:
            if trusted_keys is None and file.read(len(_MAGIC)) == _MAGIC:
                file.seek(0)
                return _objects(file, map_location)
    except (OSError, TypeError):
        pass  # the error of a missing artifact says more
    return artifact.load(
        path, map_constants=map_constants, threads=threads, entry=entry, rebuilder=CompilerHere(),
        trusted_keys=trusted_keys, sandbox=sandbox,
        openers={kind: partial(_opened, where) for kind, where in _OPENERS.items()})


def _objects(file: Any, map_location: Any) -> Any:
    if file.read(len(_MAGIC)) != _MAGIC:
        raise CheckpointError("not a file that weft.save has written")
    try:
        if map_location is None:
            return _Reader(file).load()
        # Not before a tensor is moved: a module of an artifact is loaded without a compiler.
        placement = importlib.import_module("weft.eager.copies")
        with placement.located(map_location):
            return _Reader(file).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ValueError) as error:
        raise CheckpointError("a damaged file of objects", got=str(error)) from error
