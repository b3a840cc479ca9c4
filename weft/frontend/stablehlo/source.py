"""A StableHLO module, in a file or from JAX, as a ``Source``."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.frontend.source import Examples, ImportOptions, Source, SourceDigest
from weft.frontend.stablehlo import load_jax_part
from weft.ir.module import IRModule
from weft.support.errors import InvalidModelError, OptionError
from weft.support.file_content import FileContent, digest_of, state_at

if TYPE_CHECKING:
    from weft.frontend.stablehlo.jax_program import JaxText

_BYTECODE = b"ML\xefR"


def open_stablehlo(model: Any, examples: Examples, options: ImportOptions) -> Source:
    """The source of a file, or of a function of JAX."""
    if isinstance(model, FileContent):
        if examples is not None:
            raise OptionError("example_inputs are for functions", got=str(model))
        return StableHloFile(model)
    return JaxSource(model, examples, options)


class StableHloFile(Source):
    """A file with the text of a module, or its bytecode."""

    kind = "stablehlo"
    assumes_ranges = True

    def __init__(self, file: FileContent) -> None:
        super().__init__(file)
        self._file = file

    @functools.cached_property
    def _text(self) -> str:
        try:
            data = bytes(self._file.content().data)
            if data.startswith(_BYTECODE):
                return str(load_jax_part("jax_program").text_of_bytecode(data))
            return data.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidModelError(f"{self.file} cannot be read", got=str(error)) from None

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        from weft.frontend.stablehlo.importer import import_text

        return import_text(self._text, _shapes(options), str(self.file))

    def digest(self) -> SourceDigest | str:
        """See ``Source``."""
        if has_users_converters():
            return "converters of the user decide about the code"
        try:
            found = self._file.content()
        except (OSError, ValueError, MemoryError):
            return "the file cannot be read"  # the import reports the error
        path = Path(self._file).absolute()
        return SourceDigest(found.digest, bytes(found.data),
                            ((str(path), state_at(found.status, found.began)),),
                            str(path), {f"the file {path.name}": found.digest})


class JaxSource(Source):
    """A function of JAX with example inputs, or one that JAX has lowered or exported.

    A single array as ``examples`` means the tuple ``(array,)``.
    """

    kind = "jax"
    assumes_ranges = True

    def __init__(self, model: Any, examples: Examples, options: ImportOptions) -> None:
        super().__init__()
        is_traced = not hasattr(model, "mlir_module") and not hasattr(model, "compiler_ir")
        if is_traced and examples is None:
            raise OptionError("a function is traced by JAX for example inputs",
                              got=getattr(model, "__name__", type(model).__name__),
                              help="weft.compile(f, example_inputs=(x, y)); jax.ShapeDtypeStruct "
                                   "stands for an array")
        if not is_traced and examples is not None:
            raise OptionError("the function is traced already", got="example_inputs")
        one = examples is not None and not isinstance(examples, (Mapping, list, tuple))
        self._model, self._shapes = model, _shapes(options)
        self._examples: Any = (examples,) if one else examples

    @functools.cached_property
    def _traced(self) -> JaxText:
        return load_jax_part("jax_program").text_of(  # type: ignore[no-any-return]
            self._model, self._examples, self._shapes)

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        from weft.frontend.stablehlo.importer import import_text

        return import_text(self._traced.text, _shapes(options), "<jax>", self._traced.sizes)

    def digest(self) -> SourceDigest | str:
        """See ``Source``. The text of the module has everything, constants included."""
        if has_users_converters():
            return "converters of the user decide about the code"
        text = self._traced.text.encode()
        name = getattr(self._model, "__qualname__", type(self._model).__name__)
        return SourceDigest(f"{digest_of(text).hex()} {self._traced.sizes!r}", _names_in(text),
                            identity=f"jax {name}")


def _names_in(text: bytes) -> bytes:
    """The text without the bytes of large constants."""
    return re.sub(rb'"0x[0-9A-Fa-f]*"', b'""', text)


def has_users_converters() -> bool:
    """Whether a user has registered a converter, which decides about code without a digest."""
    registry = sys.modules.get("weft.frontend.stablehlo.registry")
    return registry is not None and bool(registry.CONVERTERS.of_users())


def _shapes(options: ImportOptions) -> Mapping[str, Sequence[object] | None]:
    return options.input_shapes or {}
