"""Calls of a module that has a program for each set of input shapes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from weft.runtime.buffers import BoundCall
from weft.runtime.explain import explanation
from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.profile import Profile
from weft.runtime.run_control import RunControl
from weft.runtime.signature import Signature
from weft.support.errors import InvalidInputError
from weft.support.fallback import module_log


class ProgramForShapes(Protocol):
    """The program for one set of shapes; see ``CompiledModule``."""

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on inputs of these shapes."""

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """A call without arguments on these buffers."""
        ...

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """The named outputs for inputs by name."""
        ...

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel."""
        ...


class CallsByShape(ABC):
    """Finds the program for the shapes of the arguments (``program_for``), and calls it."""

    _start: str = "from compiled code, as an artifact holds it"

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._signature = Signature(manifest)
        self._fallbacks = module_log(manifest.fallbacks)

    @abstractmethod
    def program_for(self, values: Sequence[Any]) -> ProgramForShapes:
        """The program for the shapes of these arguments.

        Raises ``InvalidInputError`` for shapes that do not fit the signature.
        """
        ...

    def explain(self) -> str:
        """See ``CompiledModule.explain``; lists what the programs for all shapes have met."""
        return explanation(self.manifest.signature(), self._start, self._fallbacks)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input; symbolic sizes are texts."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output, as far as known without input shapes."""
        return self.manifest.outputs

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run on inputs given by position or by name; one output alone, several as a tuple.

        ``out`` gives the arrays to write, as in ``CompiledModule``. Raises ``InvalidInputError``
        for arguments that do not fit.
        """
        if out is not None and self._signature.takes("out"):
            kwargs, out = {**kwargs, "out": out}, None
        values = self._signature.bind(args, kwargs)
        return self.program_for(values)(*values, out=out)

    def bind(self, /, *args: Any, out: Any = None, **kwargs: Any) -> BoundCall:
        """A call without arguments on these buffers, as ``CompiledModule.bind``."""
        if out is not None and self._signature.takes("out"):
            kwargs, out = {**kwargs, "out": out}, None
        values = self._signature.bind(args, kwargs)
        return self.program_for(values).bind(*values, out=out)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """See ``CompiledModule.run``."""
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            raise InvalidInputError("feeds are not a mapping", got=type(feeds).__name__,
                                    expected=f"arrays by name: {self.manifest.signature()}")
        return self.program_for(self._signature.bind((), feeds)).run(output_names, feeds, control)

    def profile(self, /, *args: Any, repeat: int = 20, **kwargs: Any) -> Profile:
        """Time every kernel of the program for these inputs."""
        values = self._signature.bind(args, kwargs)
        return self.program_for(values).profile(*values, repeat=repeat)
