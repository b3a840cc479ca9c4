"""``Recompiler``: what an executable asks the compiler for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from weft.runtime.programs_by_size import Shapes
from weft.support.fallback import Fallback

if TYPE_CHECKING:
    from weft.runtime.executable import Executable
    from weft.runtime.improvement import Improvement


class Recompiler(Protocol):
    """Compiles the model of an executable again: for other shapes, or to show how it was compiled.

    ``whole`` is the executable. An executable from an artifact has none.
    """

    @property
    def options(self) -> Any:
        """The ``CompileOptions`` of the model."""

    def specialize(self, whole: Executable, shapes: Shapes) -> Executable:
        """The program for these input shapes."""
        ...

    def for_sizes(self, whole: Executable, sizes: Sequence[Mapping[str, int]]
                  ) -> Improvement | None:
        """The build of kernels for these values of the program's symbols, with the same bits.

        ``None`` if the program cannot have such kernels.
        """
        ...

    def beyond(self, whole: Executable, shapes: Shapes) -> Fallback | None:
        """The change of plan to compile for shapes that the program for all sizes refuses.

        ``None`` if it shall refuse them: the user has declared the ranges of its sizes.
        """
        ...

    def part(self, whole: Executable, outputs: Sequence[str] | None, inputs: Iterable[str]
             ) -> Executable:
        """The program that computes these tensors (``None``: the outputs) from those."""
        ...

    def as_text(self, stage: str) -> str:
        """See ``Executable.as_text``."""
        ...

    def as_dot(self, stage: str) -> str:
        """See ``Executable.as_dot``."""
        ...

    def as_svg(self, stage: str) -> str | None:
        """See ``Executable.as_svg``."""
        ...

    def export(self, whole: Executable, path: str | os.PathLike[str], format: str,
               **options: Any) -> None:
        """See ``Executable.export``."""

    def pickled(self) -> tuple[Any, ...]:
        """See ``object.__reduce__``."""
        ...
