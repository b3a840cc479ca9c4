"""A torch module, an ``ExportedProgram`` or the file of one as a ``Source``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from weft.frontend.source import Declared, Examples, ImportOptions, Source, SourceDigest
from weft.frontend.torch import from_torch, torch_program
from weft.frontend.torch.archive import load_archive
from weft.frontend.torch.callables import as_module, check_initialized
from weft.frontend.torch.module_digest import module_digest
from weft.frontend.torch.registry import CONVERTERS
from weft.ir import IRModule, TensorType, as_shape, is_static
from weft.support.file_content import FileContent, state_at

if TYPE_CHECKING:
    from weft.frontend.torch.program import TorchProgram


class TorchSource(Source):
    """A model that is traced when its program is asked for, so not if the cache has its code.

    A single tensor as ``examples`` means the tuple ``(tensor,)``.
    """

    assumes_ranges = True

    def __init__(self, model: torch.nn.Module | torch.export.ExportedProgram | FileContent,
                 examples: Examples, options: ImportOptions) -> None:
        super().__init__(model if isinstance(model, FileContent) else None)
        is_one = examples is not None and not isinstance(examples, (Mapping, Sequence))
        check_initialized(model)
        self._model: Any = model
        self._examples: Examples = (examples,) if is_one else examples
        self._shapes: Any = options.input_shapes or {}

    @functools.cached_property
    def program(self) -> TorchProgram:
        """The traced program; see ``torch_program``."""
        model = load_archive(self.file) if self.file is not None \
            else as_module(self._model, self._examples)
        return torch_program(model, example_inputs=self._examples, inputs=self._shapes)

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        shapes = options.input_shapes or {}
        return from_torch(self.program, inputs={name: shape for name, shape in shapes.items()
                                                if shape is not None})

    def signature(self, options: ImportOptions) -> tuple[Declared, Declared] | None:
        """See ``Source``."""
        if "program" not in vars(self):  # torch cannot trace it
            return None
        inputs, outputs = ([(port.name, port.type) for port in ports]
                           for ports in (self.program.inputs, self.program.outputs))
        shapes = options.input_shapes or {}
        types = (TensorType(as_shape(shapes.get(name) or type_.shape), type_.dtype)
                 for name, type_ in inputs)
        return None if all(map(is_static, types)) else (inputs, outputs)

    def digest(self) -> SourceDigest | str:
        """See ``Source``. Modules and files of static shapes have one."""
        kind = type(self._model)
        if self.file is not None and not self._shapes and self._examples is None:
            return _digest_of_file(self.file)
        if self._shapes or isinstance(self._model, torch.jit.ScriptModule) \
                or not isinstance(self._model, torch.nn.Module):
            return f"no digest covers a {kind.__name__} that is exported or has dynamic sizes"
        found = module_digest(self._model, self._examples)
        if isinstance(found, str):
            return found
        return SourceDigest(f"torch {found.text}", parts=found.parts,
                            identity=f"{kind.__module__}.{kind.__qualname__}")


def _digest_of_file(file: FileContent) -> SourceDigest | str:
    if CONVERTERS.of_users():
        return "converters of the user decide about the program"
    try:
        found = file.content()
    except (OSError, ValueError, MemoryError):
        return "the file cannot be read"  # the import reports the error
    path = Path(file).absolute()
    return SourceDigest(f"torch {torch.__version__} {found.digest}",
                        files=((str(path), state_at(found.status, found.began)),),
                        identity=str(path), parts={f"the file {path.name}": found.digest})
