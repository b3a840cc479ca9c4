"""From a model to an executable: the stations of a compilation, in order.

``CompileRequest.check`` checks the options, ``open_source`` finds the front end, ``cached`` looks
the code up or keeps it, ``program.build`` makes it, and ``open_program`` loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from weft.compiler.cache import ProgramCode, Remember, cached
from weft.compiler.compilation import Compilation
from weft.compiler.open_model import load_launcher, open_program
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode
from weft.compiler.program.constants import Memory
from weft.compiler.request import CheckedRequest, CompileRequest
from weft.frontend.source import Examples, ModelLike, Source, open_source
from weft.runtime.executable import Executable
from weft.runtime.improvement import Improvement
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, InternalError
from weft.support.fallback import FallbackLog, recording


@dataclass(frozen=True, slots=True)
class ModelCompiler:
    """Compiles a model, at first and again for other sizes and other tensors."""

    source: Source
    checked: CheckedRequest

    @property
    def options(self) -> CompileOptions:
        """The options of the compilation."""
        return self.checked.options

    def executable(self, remember: Remember | None = None) -> Executable:
        """The executable of the model; ``remember`` is that of ``cached``."""
        code = cached(self.source, self.options, self._make, remember)
        return self.opened(code)

    def _make(self, memory: Memory) -> ProgramCode:
        from weft.compiler.program.build import code_of_source  # code in the cache needs none of it

        return code_of_source(self.source, self.options, memory)

    def opened(self, code: ProgramCode) -> Executable:
        """The executable of the model's code."""
        # The cache keeps code without the number of threads.
        code = replace(code, manifest=replace(code.manifest, threads=self.checked.threads))
        whole = code if isinstance(code, ModelCode) else None
        counts = whole is None or bool(whole.manifest.counts)
        if whole is None or whole.improve is None:
            return open_program(code, self.options, Compilation(self, whole, counts=counts))
        improvement = self._improvement(whole, whole.improve)
        executable = open_program(
            code, self.options, Compilation(self, None, counts=counts, improvement=improvement))
        executable.improve(improvement)
        return executable

    def _improvement(self, first: ModelCode, improve: Callable[[], ModelCode]) -> Improvement:
        """What makes the optimised code of a model; the first code answers meanwhile."""
        def make() -> ModelCode:
            with config(progress=False), recording(FallbackLog(is_trial=True)):
                made = improve()
            manifest = replace(made.manifest, threads=self.checked.threads)
            return replace(made, manifest=manifest)

        return Improvement(make, partial(load_launcher, options=self.options),
                           first.manifest.signature())

    def code(self) -> ModelCode:
        """The optimised code of a model that has a program, from the cache or compiled again."""
        return self._with(replace(self.options, tier="full")).first_code()

    def _with(self, options: CompileOptions) -> ModelCompiler:
        return replace(self, checked=replace(self.checked, options=options))

    def first_code(self) -> ModelCode:
        """The code of a model that has a program, of the tier that the options ask for."""
        with self.checked.settings():
            code = cached(self.source, self.options, self._make)
        if not isinstance(code, ModelCode):
            raise InternalError("the model has no program for all sizes any more",
                                got=code.reason)
        return code

    def at(self, fixed: CompileOptions) -> Executable:
        """The executable for options that fix the sizes of a model with dynamic shapes."""
        self.source.check_unchanged()
        with self.checked.settings(), fixed.settings():
            made = self._with(fixed)
            return made.opened(made.first_code())

    def code_in(self, options: CompileOptions, memory: Memory) -> ModelCode:
        """The code for these options, whose constants go to ``memory``; the cache has its kernels.

        Raises ``ArtifactError`` for a model without a program for all sizes.
        """
        from weft.compiler.program.build import code_of_source

        self.source.check_unchanged()
        with self.checked.settings(), options.settings(), self.source.held(), \
                recording(FallbackLog(is_trial=True)):
            made = code_of_source(self.source, options, memory)
        if not isinstance(made, ModelCode):
            raise ArtifactError("the model has no program for all sizes", got=made.reason)
        return made

    def reweighted(self, values: Mapping[str, np.ndarray]) -> Executable:
        """The executable of the model with other values of weights; the cache has its kernels."""
        from weft.frontend.weights import Reweighted

        self.source.check_unchanged()
        options = replace(self.options, tier="full")
        source = Reweighted(self.source, values)
        made = replace(self._with(options), source=source)
        with self.checked.settings(), options.settings(), self.source.held(), \
                recording(FallbackLog(is_trial=True)):
            return made.executable()

    def part(self, source: Source, options: CompileOptions, code: ModelCode | None) -> Executable:
        """The executable of a part of the model, compiled if there is no ``code``."""
        made = ModelCompiler(source, CheckedRequest(options))
        return made.executable() if code is None else made.opened(code)


def compile_model(model: ModelLike, examples: Examples, request: CompileRequest,
                  remember: Remember | None) -> Executable:
    """See ``weft.compile``. ``remember`` notes compiled files for warm starts."""
    with request.settings():
        compiler = compiler_of(model, examples, request)
        executable = compiler.executable(remember)
        values = compiler.source.initial_values()
        if values:  # state is memory of the device; an executable for another machine has none
            for name in values.keys() & executable.state.keys():
                executable.state[name] = values[name]  # of State
        return executable


def compiler_of(model: ModelLike, examples: Examples, request: CompileRequest) -> ModelCompiler:
    """The compiler of a model, in the settings of the request.

    Raises what checking the request and opening the model raise.
    """
    checked = request.check()
    options = checked.options
    source = open_source(model, examples, options)
    if source.is_cut:
        options = replace(options, inputs=(), outputs=None,
                          state=(*options.state, *source.state.items()))
    return ModelCompiler(source, replace(checked, options=options))
