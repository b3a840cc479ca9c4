"""``ForeignModel``: an executable for another machine."""

from __future__ import annotations

from typing import Any, NoReturn

from weft.compiler.compiled_model import Compilation, Compiled
from weft.runtime import Manifest, TensorSpec
from weft.runtime.explain import explanation
from weft.support.errors import ArtifactError, TargetError
from weft.support.fallback import module_log


class ForeignModel(Compiled):
    """A model compiled for a CPU whose code this machine cannot run: export it, print it.

    Calling it raises ``TargetError``; running the code would kill the process.
    """

    _start: str = "compiled for another machine"

    def __init__(self, compilation: Compilation, reason: ArtifactError) -> None:
        self._compilation = compilation
        self._reason = reason
        self.manifest: Manifest = compilation.code.manifest
        self._fallbacks = module_log(self.manifest.fallbacks)

    def explain(self) -> str:
        """See ``CompiledModule.explain``."""
        return explanation(self.manifest.signature(), self._start, self._fallbacks)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every input."""
        return self.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and shape of every output."""
        return self.manifest.outputs

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise TargetError("the model was compiled for another machine",
                          expected=self._reason.expected, got=self._reason.got,
                          notes=[self._reason.what], help="export it and run the artifact there")

    run = __call__
    bind = __call__
    profile = __call__
