"""The protocol of what ``weft.compile`` returns."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from weft.runtime.buffers import BoundCall
from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.profile import Profile
from weft.runtime.run_control import RunControl

if TYPE_CHECKING:
    from weft.compiler.options import CompileOptions


@runtime_checkable
class Executable(Protocol):
    """A compiled model: call it, profile it, export it, look at any stage of its compilation.

    Three classes implement it. ``CompiledModel`` runs on this machine. ``DynamicModel`` has dynamic
    shapes: it compiles a program for each set of input shapes at its first call. ``ForeignModel``
    was compiled for another machine: it can be exported and printed, and raises ``TargetError``
    when it is called.
    """

    @property
    def options(self) -> CompileOptions:
        """The options that the model was compiled with."""
        ...

    @property
    def manifest(self) -> Manifest:
        """Signature, target, kernel calls and memory of the program."""
        ...

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input; dynamic dimensions are names."""
        ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output."""
        ...

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on inputs given by position or by name.

        Inputs are NumPy arrays, or arrays that support DLPack, of exactly the declared shapes and
        dtypes. Returns the output as a new array, or a tuple of several; ``out`` gives the arrays
        to write instead. Raises ``InvalidInputError`` for arguments that do not fit.
        """
        ...

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """A call without arguments that reads and writes these buffers: ``run = mod.bind(x)``."""
        ...

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """ONNX Runtime's signature: the named outputs (``None``: all) for inputs by name.

        ``control`` gives the run a time limit, a token that cancels it, or records its steps.
        """
        ...

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel over ``repeat`` runs on these inputs."""
        ...

    def explain(self) -> str:
        """What weft does instead of what was asked for, and whether the start was warm, as text."""
        ...

    def as_text(self, stage: str = "optimized") -> str:
        """A stage of the compilation as text; ``OptionError`` for an unknown stage."""
        ...

    def as_dot(self, stage: str = "optimized") -> str:
        """The graph at the end of a stage, for Graphviz."""
        ...

    def as_svg(self, stage: str = "lowered") -> str | None:
        """The graph of ``main`` as SVG; ``None`` if it is too large to draw."""
        ...

    def export(self, path: str | os.PathLike[str], *, format: str = "weft") -> None:
        """Write an artifact for ``weft.load`` (``format="weft"``) or C (``format="c"``)."""
        ...
