"""From a model to an executable: the stations of a compilation, in order.

``CompileRequest.check`` checks the options, ``open_source`` finds the front end, ``cached`` looks
the code up or keeps it, ``program.build`` makes it, and ``open_executable`` loads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from weft.compiler.cache import ProgramCode, Remember, cached
from weft.compiler.open_model import open_program
from weft.compiler.options import CompileOptions
from weft.compiler.program.build import build_part, code_of_source
from weft.compiler.program.model_code import ModelCode
from weft.compiler.request import CompileRequest
from weft.compiler.stages import Stages
from weft.frontend.source import Examples, ModelLike, ProgramSource, Source, open_source
from weft.runtime.executable import Executable
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, OptionError

if TYPE_CHECKING:
    from weft.compiler.program.constants import ConstantMemory


@dataclass(frozen=True, slots=True)
class ModelCompiler:
    """Compiles a model, at first and again for other sizes and other tensors.

    ``knobs`` are the settings of the user, ``threads`` those of the calls of executables.
    """

    source: Source
    options: CompileOptions
    knobs: Mapping[str, Any]
    threads: int | None = None

    def executable(self, remember: Remember | None = None) -> Executable:
        """The executable of the model; ``remember`` is that of ``cached``."""
        code = cached(self.source, self.options,
                      partial(code_of_source, self.source, self.options), remember)
        return self.opened(code)

    def opened(self, code: ProgramCode) -> Executable:
        """The executable of the model's code.

        Raises ``OptionError`` if the user asks for kernels at some sizes, and all are fixed.
        """
        if isinstance(code, ModelCode) and self.options.specialize and not code.manifest.symbols:
            raise OptionError("specialize is for models with symbolic sizes",
                              got=code.manifest.signature(),
                              help='name the sizes: inputs={"x": ("batch", 3, 224, 224)}')
        manifest = replace(code.manifest, threads=self.threads)  # the cache keeps code without it
        return open_program(replace(code, manifest=manifest), self.stages(code), self.at)

    def stages(self, code: ProgramCode) -> Stages:
        """The stages of the compilation that gave ``code``, which may have left sizes unknown."""
        return self.stages_of(counts=not isinstance(code, ModelCode) or bool(code.manifest.counts))

    def stages_of(self, *, counts: bool) -> Stages:
        """The stages; ``counts``: whether sizes that data determines are symbols."""
        options = self.options if counts else replace(self.options, data_sizes=False)
        return Stages(self.source, options)

    def code(self) -> ModelCode:
        """The code of a model that has a program, from the cache or compiled again."""
        with config(**self.knobs):
            code = cached(self.source, self.options,
                          partial(code_of_source, self.source, self.options))
        if not isinstance(code, ModelCode):
            raise InternalError("the model has no program for all sizes any more",
                                got=code.reason)
        return code

    def at(self, fixed: CompileOptions) -> Executable:
        """The executable for options that fix the sizes of a model with dynamic shapes."""
        self.source.check_unchanged()
        with config(**self.knobs), fixed.settings():
            made = replace(self, options=fixed)
            return made.opened(made.code())


def compile_model(model: ModelLike, examples: Examples, request: CompileRequest,
                  remember: Remember | None) -> Executable:
    """See ``weft.compile``. ``remember`` notes compiled files for warm starts."""
    with request.settings():
        compiler = compiler_of(model, examples, request)
        executable = compiler.executable(remember)
        values = compiler.source.initial_values()
        if values:  # state is memory of the device; an executable for another machine has none
            for name in values.keys() & executable.state.keys():
                executable.state[name][...] = values[name]
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
    return ModelCompiler(source, options, checked.knobs, checked.threads)


def part_of(stages: Stages, fetches: Sequence[str] | None, feeds: Sequence[str],
            memory: ConstantMemory) -> Executable:
    """The program that computes other tensors of a compiled model, or from other tensors.

    Its constants go to ``memory`` if its sizes are fixed and it is first-order.
    """
    if stages.source is None:
        raise OptionError("an unpickled model has no inner tensors",
                          help="run parts in the process that compiled the model")
    with stages.options.settings():
        part = stages.source.import_part(stages.options, fetches, dict.fromkeys(feeds))
        options = replace(stages.options, inputs=(), outputs=None, specialize=())
        if options.placement_names:
            options = replace(options, placement=None)  # the annotations are there
        compiler = ModelCompiler(ProgramSource(part), options, {})
        code = build_part(part, options, memory)
        return compiler.executable() if code is None else compiler.opened(code)
